"""The payloads of one queue: serializer, codecs and size limit in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from glidemq_async.errors import CodecError, PayloadTooLarge, SerializationError
from glidemq_async.options.validation import whole_number
from glidemq_async.payloads.codecs import Codec, PayloadContext
from glidemq_async.payloads.codecs.chain import MAGIC, PayloadKind, codecs_of, foreign
from glidemq_async.payloads.serialization import MsgpackSerializer, Serializer, pack_msgpack, unpack_msgpack

#: Default maximum size of one stored value in bytes.
DEFAULT_LIMIT: Final = 1024 * 1024
#: Default threshold and maximum size for compression.
_MOST_BEFORE_ENCODING: Final = 64 * 1024 * 1024
#: None in the encoding of the default serializer.
_NONE: Final = b"\xc0"


class Payloads:
    """Encodes and decodes the payloads of one queue. Raises TypeError and ValueError for bad options.

    `base` is the queue's base key. `limit` applies to the encoded size that is sent.
    """

    def __init__(
        self, base: str, serializer: Serializer | None, codecs: Sequence[Codec], limit: int | None = None
    ) -> None:
        if serializer is not None and not isinstance(serializer, Serializer):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"serializer must have dumps and loads, got {serializer!r}")
        self._base = base
        self._serializer: Serializer = serializer or MsgpackSerializer()
        self._codecs = codecs_of(codecs)
        self.limit = DEFAULT_LIMIT if limit is None else whole_number("payload_limit", limit, least=1)
        is_default = type(self._serializer) is MsgpackSerializer
        self._dumps = pack_msgpack if is_default else self._serializer.dumps
        self._loads = self._serializer.loads
        plain = self._codecs is None and is_default
        #: The stored form of None, computed once because most handlers return None.
        self.packed_none = _NONE if plain else None
        #: Decodes what `decode` decodes, with other errors and in fewer steps. None with a serializer or codecs.
        self.quick_loads = unpack_msgpack if plain else None

    @property
    def plain_limit(self) -> int:
        """Maximum size in bytes in the default serializer's form. It exceeds `limit` if a codec may reduce the size."""
        # A child process encodes results before the codecs of the worker do. It must not refuse a value that
        # compression would make small enough, and it must not send gigabytes for the worker to refuse.
        return self.limit if self.packed_none is not None else max(self.limit, _MOST_BEFORE_ENCODING)

    def binds(self, data: bytes) -> bool:
        """Return whether codecs bind these stored bytes to their job and queue."""
        return self._codecs is not None or data.startswith(MAGIC)

    def serialize(self, value: object) -> bytes:
        """Return a value in the form of the serializer, without codecs. Raises SerializationError."""
        return self._dumps(value)

    def encode(self, value: object, kind: PayloadKind, name: str, job_id: str = "", base: str = "") -> bytes:
        """Return the stored form of a value. `base` is set if the value belongs to another queue.

        Raises SerializationError, and PayloadTooLarge with the size and the limit.
        """
        try:
            data = self._dumps(value)
        except SerializationError as error:
            raise _named(error, kind, job_id) from error.__cause__
        if self._codecs is not None:
            try:
                data = self._codecs.encode(data, PayloadContext(base or self._base, kind, name, job_id))
            except CodecError as error:
                raise CodecError(f"{_called(kind, job_id)} cannot be encoded: {error}") from error
        if len(data) > self.limit:
            raise PayloadTooLarge(_called(kind, job_id), len(data), self.limit, "payload_limit")
        return data

    def decode(self, data: bytes, kind: PayloadKind, name: str, job_id: str, base: str = "", what: str = "") -> object:
        """Return the value of stored bytes. Raises SerializationError, whose message names the value as `what`."""
        try:
            if self._codecs is not None:
                data = self._codecs.decode(data, PayloadContext(base or self._base, kind, name, job_id))
            return self._loads(data)
        # Serializers and codecs of users may raise anything for bytes that they did not write.
        except Exception as error:
            what = what or _called(kind, job_id)
            if self._codecs is None and data.startswith(MAGIC):
                raise CodecError(f"{what} cannot be decoded: {foreign(data)}") from error
            refused = CodecError if isinstance(error, CodecError) else SerializationError
            raise refused(f"{what} cannot be decoded: {error}") from error


def _named(error: SerializationError, kind: PayloadKind, job_id: str) -> SerializationError:
    """Return the error of a value with the name of the value in its message, instead of a path that is only `$`."""
    text, path = str(error), error.path
    # Another serializer has its own messages. A place in the data of an add is shown as the caller has written it.
    if not text.startswith(f"{path} ") or (kind == "data" and path != "$"):
        return error
    place = "" if path == "$" else f", at {path},"
    return SerializationError(f"{_called(kind, job_id)}{place}{text.removeprefix(path)}", path)


def _called(kind: str, job_id: str) -> str:
    return f"{kind} of job {job_id}" if job_id else kind
