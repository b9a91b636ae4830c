"""Serializers: the conversion of payloads and results to bytes and back.

error_paths.py locates an error inside a value after encoding has failed. extension_types.py encodes dates, decimals and
UUIDs.
"""

from __future__ import annotations

import json
import threading
from enum import Enum
from typing import Final, Protocol, cast, runtime_checkable

import msgpack

from glidemq_async.errors import SerializationError
from glidemq_async.payloads.error_paths import JSON, MSGPACK, locate
from glidemq_async.payloads.extension_types import from_extension, to_extension

__all__ = ["JsonSerializer", "MsgpackSerializer", "Serializer"]


@runtime_checkable
class Serializer(Protocol):
    """Converts values to bytes and back. Several threads call it concurrently.

    Both methods raise SerializationError for unsupported values.
    """

    def dumps(self, obj: object, /) -> bytes:
        """Encode a value."""
        ...

    def loads(self, data: bytes, /) -> object:
        """Decode a value."""
        ...


class MsgpackSerializer:
    """The default serializer. It keeps the type of None, bool, int (64 bits), float, str, bytes, list, dict, datetime,
    date, time, timedelta, Decimal and UUID.

    Tuples become lists, bytearray and memoryview become bytes, subclasses of these types become their base class, and
    an Enum becomes its value. A datetime or time with a time zone keeps the offset, but not the name of the zone. Keys
    may have any of these types except containers. Sets and other objects are refused with a SerializationError that
    names the place and a remedy.
    """

    def dumps(self, obj: object, /) -> bytes:
        """Encode a value as msgpack. Raises SerializationError."""
        return _encoder.dumps(obj)

    def loads(self, data: bytes, /) -> object:
        """Decode msgpack. Raises SerializationError for malformed bytes."""
        try:
            return unpack_msgpack(data)
        # A container as a key raises TypeError, and all other malformed data ValueError.
        except (ValueError, TypeError) as error:
            raise _undecodable("msgpack", data, error) from error


class JsonSerializer:
    """JSON, for payloads that programs in other languages or people read.

    Tuples become lists and keys become str, as in the json module. Bytes, dates, decimals, UUIDs, NaN and infinities
    are refused, because decoding would not restore them.
    """

    def dumps(self, obj: object, /) -> bytes:
        """Encode a value as compact UTF-8 JSON. Raises SerializationError."""
        try:
            return _json.encode(obj).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise _unencodable("JSON", locate(obj, JSON), error) from error

    def loads(self, data: bytes, /) -> object:
        """Decode JSON. Raises SerializationError for malformed bytes."""
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise _undecodable("JSON", data, error) from error


def unpack_msgpack(data: bytes) -> object:
    """Decode what `pack_msgpack` returns. Raises any exception for malformed bytes."""
    return msgpack.unpackb(data, strict_map_key=False, ext_hook=from_extension)


# The buffer of an encoder keeps the size of the largest value. Above this size a new encoder is cheaper.
_LARGE: Final = 1024 * 1024

# Enum values of these types are packed without a further check. An int may exceed 64 bits, so it is checked.
_NATIVE: Final = frozenset({type(None), bool, float, str, bytes, list, dict})

_json: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class _Encoder(threading.local):
    """One msgpack packer per thread, because creating one costs more than packing a small value."""

    def __init__(self) -> None:
        self._met_tuple = False
        self._packer = self._fresh()

    def dumps(self, obj: object) -> bytes:
        self._met_tuple = False
        try:
            data = self._packer.pack(obj)
        except (TypeError, ValueError, OverflowError) as error:
            self._packer = self._fresh()
            raise _unencodable("msgpack", locate(obj, MSGPACK), error) from error
        if len(data) > _LARGE:
            self._packer = self._fresh()
        # A tuple may be a key, which would be packed as a list and could not be decoded.
        if self._met_tuple and _has_tuple_key(obj):
            raise _unencodable("msgpack", locate(obj, MSGPACK), None)
        return data

    def _fresh(self) -> msgpack.Packer:
        return msgpack.Packer(default=self._base_form, strict_types=True)

    def _base_form(self, obj: object) -> object:
        """Return the plain form of a value that the packer does not accept: a tuple, a subclass, a date or similar."""
        if isinstance(obj, Enum):
            obj = obj.value
            if type(obj) in _NATIVE or (type(obj) is int and -(2**63) <= obj < 2**64):
                return obj
        if isinstance(obj, tuple):
            # Only noted here. The packer does not show if a tuple is a key, and the search for one costs time, so
            # `dumps` searches only values with a tuple.
            self._met_tuple = True
            return list(cast("tuple[object, ...]", obj))
        if (extension := to_extension(obj)) is not None:
            return msgpack.ExtType(*extension)
        # A plain int comes here if it exceeds 64 bits. Returning it unchanged would loop for ever.
        if type(obj) is int:
            raise TypeError("more than 64 bits")
        return _without_subclass(obj)


def _has_tuple_key(root: object) -> bool:
    pending = [root]
    while pending:
        value = pending.pop()
        if isinstance(value, Enum):
            value = value.value
        if isinstance(value, dict):
            entries = cast("dict[object, object]", value)
            if any(isinstance(key.value if isinstance(key, Enum) else key, tuple) for key in entries):
                return True
            pending.extend(entries.values())
        elif isinstance(value, (list, tuple)):
            pending.extend(cast("list[object] | tuple[object, ...]", value))
    return False


def _without_subclass(obj: object) -> object:
    # Call the methods of the base class, because a subclass may override them, as an enum does with __str__.
    if isinstance(obj, str):
        return str.__str__(obj)
    if isinstance(obj, int):
        return int.__int__(obj)
    if isinstance(obj, float):
        return float.__float__(obj)
    if isinstance(obj, (bytes, bytearray)):
        return bytes(memoryview(obj))
    if isinstance(obj, dict):
        return dict(cast("dict[object, object]", obj))
    if isinstance(obj, list):
        return list(cast("list[object]", obj))
    raise TypeError("no msgpack form")


_encoder: Final = _Encoder()
# One bound method serves all threads: the attributes that it reads through `self` are those of the calling thread.
pack_msgpack: Final = _encoder.dumps
"""Do the same as `MsgpackSerializer.dumps`, one frame less deep."""


def _unencodable(form: str, fault: tuple[str, str] | None, error: Exception | None) -> SerializationError:
    path, reason = fault or ("$", str(error))
    return SerializationError(f"{path} cannot be encoded as {form}: {reason}", path)


def _undecodable(form: str, data: bytes, error: Exception) -> SerializationError:
    # Some errors of msgpack have no text.
    reason = str(error) or {"StackError": "nested too deeply"}.get(type(error).__name__, "malformed")
    return SerializationError(f"{len(data)} bytes are not valid {form}: {reason}")
