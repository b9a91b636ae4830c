"""How payloads and results become bytes and back.

Where inside a value an error lies is found in payload_faults.py, and only after encoding has failed; the forms of
dates, decimals and UUIDs are those of extension_types.py.
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
    """Turns values into bytes and back; called from several threads at once.

    Both methods raise SerializationError for what they cannot handle.
    """

    def dumps(self, obj: object, /) -> bytes:
        """Return the bytes of a value."""
        ...

    def loads(self, data: bytes, /) -> object:
        """Return the value of the bytes."""
        ...


class MsgpackSerializer:
    """The default: None, bool, int (64 bits), float, str, bytes, list and dict come back as they went, and so do
    datetime, date, time, timedelta, Decimal and UUID.

    Tuples come back as lists, bytearray and memoryview as bytes, subclasses of all these as their base, an Enum as
    its value. A datetime or time with a time zone comes back with the zone's offset at that instant, not with its
    name. Keys may be any of that but containers. Sets and other objects are refused with a SerializationError that
    names the place and a way out.
    """

    def dumps(self, obj: object, /) -> bytes:
        """Return the value as msgpack; raises SerializationError."""
        return _encoder.dumps(obj)

    def loads(self, data: bytes, /) -> object:
        """Return the value of msgpack bytes; raises SerializationError for anything malformed."""
        try:
            return msgpack.unpackb(data, strict_map_key=False, ext_hook=from_extension)
        # A map inside out (a list as a key) is a TypeError, all else that can be wrong a ValueError.
        except (ValueError, TypeError) as error:
            raise _undecodable("msgpack", data, error) from error


class JsonSerializer:
    """JSON, for payloads that other languages or people read.

    Tuples come back as lists and keys as str, as in the json module; bytes, dates, decimals, UUIDs, NaN and
    infinities are refused, because they would not come back.
    """

    def dumps(self, obj: object, /) -> bytes:
        """Return the value as compact UTF-8 JSON; raises SerializationError."""
        try:
            return _json.encode(obj).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise _unencodable("JSON", locate(obj, JSON), error) from error

    def loads(self, data: bytes, /) -> object:
        """Return the value of JSON bytes; raises SerializationError for anything malformed."""
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise _undecodable("JSON", data, error) from error


# The buffer of an encoder keeps the size of the largest value it met; beyond this a fresh one is cheaper.
_LARGE: Final = 1024 * 1024

# What an Enum's value is packed as without another look. An int may not fit, and is looked at.
_NATIVE: Final = frozenset({type(None), bool, float, str, bytes, list, dict})

_json: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class _Encoder(threading.local):
    """One msgpack packer per thread: making one costs more than packing a small value."""

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
        # A tuple may have been a key, which would be packed as a list and could not be read again.
        if self._met_tuple and _has_tuple_key(obj):
            raise _unencodable("msgpack", locate(obj, MSGPACK), None)
        return data

    def _fresh(self) -> msgpack.Packer:
        return msgpack.Packer(default=self._base_form, strict_types=True)

    def _base_form(self, obj: object) -> object:
        """Return the plain form of what the packer does not take as it is: tuples, subclasses, dates and the like."""
        if isinstance(obj, Enum):
            obj = obj.value
            if type(obj) in _NATIVE or (type(obj) is int and -(2**63) <= obj < 2**64):
                return obj
        if isinstance(obj, tuple):
            self._met_tuple = True
            return list(cast("tuple[object, ...]", obj))
        if (extension := to_extension(obj)) is not None:
            return msgpack.ExtType(*extension)
        # A plain int comes here when it does not fit; returned as it is, it would come again without end.
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
    # The methods of the base are named because a subclass may override its own, as an enum does with __str__.
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


def _unencodable(form: str, fault: tuple[str, str] | None, error: Exception | None) -> SerializationError:
    path, reason = fault or ("$", str(error))
    return SerializationError(f"{path} cannot be encoded as {form}: {reason}", path)


def _undecodable(form: str, data: bytes, error: Exception) -> SerializationError:
    # Some of msgpack's errors carry no text of their own.
    reason = str(error) or {"StackError": "nested too deeply"}.get(type(error).__name__, "malformed")
    return SerializationError(f"{len(data)} bytes are not valid {form}: {reason}")
