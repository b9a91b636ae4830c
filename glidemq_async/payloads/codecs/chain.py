"""The codec protocol, chains of codecs, and the frames that identify the codec of a stored payload.

A frame consists of 0xC1 (which neither a msgpack value nor UTF-8 text starts with), the tag of its codec, and the
output of the codec.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from glidemq_async.errors import CodecError, GlideMQError

__all__ = ["MAGIC", "Codec", "CodecChain", "PayloadContext", "PayloadKind", "codecs_of"]

PayloadKind: TypeAlias = Literal["data", "result", "progress", "chunk", "signal", "step", "message"]

MAGIC: Final = b"\xc1"
#: The frame of a payload that itself begins with the magic byte.
_PLAIN: Final = b"\x00"
#: The names of the library's own codecs in messages.
_NAMES: Final = {b"C": "Compression", b"E": "Encryption", b"S": "Signing"}


class PayloadContext(NamedTuple):
    """The job and queue to which a payload belongs.

    `queue` is the queue's base key including the prefix (`glide:{emails}`). `name` is the job's name. `id` is the job's
    id, or "" if it is unknown, for example for the data of a job that is added without a `job_id`.
    """

    queue: str
    kind: PayloadKind
    name: str
    id: str


@runtime_checkable
class Codec(Protocol):
    """Converts the bytes of a payload to other bytes and back. Several threads call it concurrently.

    Both methods raise CodecError for unsupported input. Its text must not contain keys or payloads, because it is
    stored with the failed job.
    """

    @property
    def tag(self) -> bytes:
        """One byte that identifies the frames of this codec. Lower-case letters are free for applications."""
        ...

    @property
    def required(self) -> bool:
        """True if payloads that are not frames of this codec are refused."""
        ...

    def encode(self, data: bytes, context: PayloadContext, /) -> bytes | None:
        """Return the content of a frame, or None to keep the payload unchanged."""
        ...

    def decode(self, content: bytes, context: PayloadContext, /) -> bytes:
        """Return the input of `encode`. `context.id` may be known here even if it was unknown there."""
        ...


class CodecChain:
    """Codecs in the order of encoding. Decoding runs in reverse order and identifies each frame by its tag."""

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._codecs = tuple(codecs)

    def encode(self, data: bytes, context: PayloadContext) -> bytes:
        """Return the bytes to send. Raises CodecError, and PayloadTooLarge if a codec has a size limit."""
        # A serializer of a user may produce bytes that begin like a frame. A reader would take them for the output of a
        # codec, so they get a frame themselves, which `decode` removes.
        if data.startswith(MAGIC):
            data = MAGIC + _PLAIN + data
        for codec in self._codecs:
            try:
                content = codec.encode(data, context)
            except GlideMQError:
                raise
            except Exception as error:
                raise _broken(codec, error) from error
            if content is not None:
                data = MAGIC + codec.tag + content
        return data

    def decode(self, data: bytes, context: PayloadContext) -> bytes:
        """Return the payload from stored bytes. Raises CodecError."""
        for codec in reversed(self._codecs):
            if data.startswith(MAGIC + codec.tag):
                data = _decoded(codec, data[2:], context)
            # Without this check, an attacker who can write to the store would simply leave the protection out.
            elif codec.required:
                raise CodecError(f"it is not protected by {type(codec).__name__}, which is required here")
        if not data.startswith(MAGIC):
            return data
        if data[1:2] != _PLAIN:
            raise CodecError(foreign(data))
        return data[2:]


def _decoded(codec: Codec, content: bytes, context: PayloadContext) -> bytes:
    try:
        return codec.decode(content, context)
    except CodecError:
        raise
    except Exception as error:
        raise _broken(codec, error) from error


def _broken(codec: Codec, error: Exception) -> CodecError:
    # The text of an unknown exception may contain secrets, so only its type is shown.
    return CodecError(f"{type(codec).__name__} raised {type(error).__name__}")


def foreign(data: bytes) -> str:
    """Return the message for a frame that no codec of this chain can decode."""
    tag = data[1:2]
    name = _NAMES.get(tag) or f"a codec with the tag {tag!r}"
    return f"it was written with {name}: give this queue or worker the codecs that were used to write it"


def codecs_of(codecs: object) -> CodecChain | None:
    """Return the chain for the `codecs` of a user, None for an empty one. Raises TypeError and ValueError."""
    if isinstance(codecs, Codec | str) or not isinstance(codecs, Sequence):
        raise TypeError(f"codecs must be a sequence of codecs, as in codecs=[Compression()], got {codecs!r}")
    found: list[Codec] = []
    for codec in cast("Sequence[object]", codecs):
        if not isinstance(codec, Codec):
            raise TypeError(f"a codec must have tag, required, encode and decode, as Compression() has, got {codec!r}")
        if len(codec.tag) != 1 or codec.tag == _PLAIN:
            raise ValueError(f"the tag of a codec must be one byte and not 0, got {codec.tag!r}")
        if any(codec.tag == other.tag for other in found):
            raise ValueError(f"two codecs of the chain have the tag {codec.tag!r}; give each codec its own tag")
        found.append(codec)
    return CodecChain(found) if found else None
