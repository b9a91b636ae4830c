"""The payloads of one queue: serializer, codecs and size limit in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from glidemq_async.errors import CodecError, PayloadTooLarge, SerializationError
from glidemq_async.options.validation import whole_number
from glidemq_async.payloads.codecs import Codec, PayloadContext
from glidemq_async.payloads.codecs.chain import MAGIC, PayloadKind, codecs_of, foreign
from glidemq_async.payloads.serialization import MsgpackSerializer, Serializer

#: Bytes that one stored value may have unless a queue says otherwise.
DEFAULT_LIMIT: Final = 1024 * 1024
#: What compression takes and gives unless it is told otherwise.
_MOST_BEFORE_ENCODING: Final = 64 * 1024 * 1024
#: The default serializer's form of None.
_NONE: Final = b"\xc0"


class Payloads:
    """Turns the payloads of jobs into what is stored, and back. Raises TypeError and ValueError for bad options.

    `base` is the queue's base key; `limit` holds for what is sent.
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
        plain = self._codecs is None and type(self._serializer) is MsgpackSerializer
        #: What None is stored as if that is known beforehand: most handlers return nothing.
        self.packed_none = _NONE if plain else None

    @property
    def plain_limit(self) -> int:
        """Bytes of a value in the default serializer's form: more than `limit` where less may be made of it."""
        return self.limit if self.packed_none is not None else max(self.limit, _MOST_BEFORE_ENCODING)

    def encode(self, value: object, kind: PayloadKind, name: str, job_id: str = "", base: str = "") -> bytes:
        """Return what is stored of a value; `base` names another queue to which it belongs.

        Raises SerializationError, and PayloadTooLarge with the size and the limit.
        """
        data = self._serializer.dumps(value)
        if self._codecs is not None:
            try:
                data = self._codecs.encode(data, PayloadContext(base or self._base, kind, name, job_id))
            except CodecError as error:
                raise CodecError(f"{_called(kind, job_id)} cannot be encoded: {error}") from error
        if len(data) > self.limit:
            raise PayloadTooLarge(_called(kind, job_id), len(data), self.limit)
        return data

    def decode(self, data: bytes, kind: PayloadKind, name: str, job_id: str, base: str = "", what: str = "") -> object:
        """Return the value of stored bytes; any failure becomes a SerializationError that says `what` it is of."""
        try:
            if self._codecs is not None:
                data = self._codecs.decode(data, PayloadContext(base or self._base, kind, name, job_id))
            return self._serializer.loads(data)
        except Exception as error:
            what = what or _called(kind, job_id)
            if self._codecs is None and data.startswith(MAGIC):
                raise CodecError(f"{what} cannot be decoded: {foreign(data)}") from error
            refused = CodecError if isinstance(error, CodecError) else SerializationError
            raise refused(f"{what} cannot be decoded: {error}") from error


def _called(kind: str, job_id: str) -> str:
    return f"{kind} of job {job_id}" if job_id else kind
