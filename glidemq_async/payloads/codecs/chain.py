"""The codec protocol, the frames by which a reader knows what was done to a payload, and chains of codecs.

A frame is 0xC1 (no msgpack value and no UTF-8 text begins with it), the tag of its codec, and what the codec made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from glidemq_async.errors import CodecError, GlideMQError

__all__ = ["MAGIC", "Codec", "CodecChain", "PayloadContext", "PayloadKind", "codecs_of"]

PayloadKind: TypeAlias = Literal["data", "result", "progress"]

MAGIC: Final = b"\xc1"
#: The frame of a payload that begins with the magic byte by itself.
_PLAIN: Final = b"\x00"
#: How the tags of the library's own codecs are called in messages.
_NAMES: Final = {b"C": "Compression", b"E": "Encryption", b"S": "Signing"}


class PayloadContext(NamedTuple):
    """What a payload belongs to.

    `queue` is the queue's base key, prefix included (`glide:{emails}`). `name` is the job's name, `id` its id, ""
    where that is not known: the data of a job that is added without a `job_id`.
    """

    queue: str
    kind: PayloadKind
    name: str
    id: str


@runtime_checkable
class Codec(Protocol):
    """Turns the bytes of a payload into other bytes and back; called from several threads at once.

    Both methods raise CodecError for what they cannot handle; its text must hold neither keys nor payloads, for it is
    stored with the failed job.
    """

    @property
    def tag(self) -> bytes:
        """One byte by which readers know the frames of this codec; lower-case letters are yours."""
        ...

    @property
    def required(self) -> bool:
        """Whether a payload that is no frame of this codec is refused."""
        ...

    def encode(self, data: bytes, context: PayloadContext, /) -> bytes | None:
        """Return what becomes the content of a frame, None to leave the payload as it is."""
        ...

    def decode(self, content: bytes, context: PayloadContext, /) -> bytes:
        """Return what `encode` was given. `context.id` may be known now although it was not then."""
        ...


class CodecChain:
    """Codecs in the order in which they encode; reading goes backwards and finds each frame by its tag."""

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._codecs = tuple(codecs)

    def encode(self, data: bytes, context: PayloadContext) -> bytes:
        """Return the bytes to send. Raises CodecError, and PayloadTooLarge where a codec has a limit of its own."""
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
        """Return the payload of stored bytes. Raises CodecError."""
        for codec in reversed(self._codecs):
            if data.startswith(MAGIC + codec.tag):
                data = _decoded(codec, data[2:], context)
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
    # The text of a strange error may show what nobody should see: its type has to do.
    return CodecError(f"{type(codec).__name__} raised {type(error).__name__}")


def foreign(data: bytes) -> str:
    """Say of a frame that no codec here knows it."""
    tag = data[1:2]
    name = _NAMES.get(tag) or f"a codec with the tag {tag!r}"
    return f"it was written with {name}: give this queue or worker the codecs of those that write"


def codecs_of(codecs: object) -> CodecChain | None:
    """Return the chain of what a user gave as `codecs`, None for none. Raises TypeError and ValueError."""
    if isinstance(codecs, Codec | str) or not isinstance(codecs, Sequence):
        raise TypeError(f"codecs must be a sequence of codecs, as in codecs=[Compression()], got {codecs!r}")
    found: list[Codec] = []
    for codec in cast("Sequence[object]", codecs):
        if not isinstance(codec, Codec):
            raise TypeError(f"a codec must have tag, required, encode and decode, as Compression() has, got {codec!r}")
        if len(codec.tag) != 1 or codec.tag == _PLAIN:
            raise ValueError(f"the tag of a codec must be one byte and not 0, got {codec.tag!r}")
        if any(codec.tag == other.tag for other in found):
            raise ValueError(f"two codecs of the chain have the tag {codec.tag!r}: a reader could not tell them apart")
        found.append(codec)
    return CodecChain(found) if found else None
