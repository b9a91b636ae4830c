"""What worker, guard and children write to each other: msgpack lists, each after its length in four bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgpack

from glidemq_async.errors import ExecutorError

PROTOCOL: Final = 2
"""Raised with every change of a frame: both sides say theirs, and part when they differ."""
ANY_SIZE: Final = 2**31 - 1
CHUNK: Final = 256 * 1024

Frame: TypeAlias = list[Any]

_LENGTH: Final = struct.Struct(">I")


def packed(*frame: object) -> bytes:
    """Return the bytes of a frame. Raises ExecutorError for one that no peer would take."""
    body: bytes = msgpack.packb(frame)
    if len(body) > ANY_SIZE:
        raise ExecutorError(f"a message of {len(body)} bytes is too large to be sent to another process")
    return _LENGTH.pack(len(body)) + body


class Splitter:
    """Cuts what arrives into frames; none may be larger than `limit` bytes."""

    def __init__(self, limit: int = ANY_SIZE) -> None:
        self.limit = limit
        self._left = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Give the frames that are complete now. Raises ExecutorError for what is no frame, or too large."""
        self._left += data
        while len(self._left) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._left)
            if size > self.limit:
                raise ExecutorError(f"a process sent a message of {size} bytes, the limit is {self.limit}")
            end = _LENGTH.size + size
            if len(self._left) < end:
                return
            with memoryview(self._left) as view:
                body = bytes(view[_LENGTH.size : end])
            del self._left[:end]
            yield _frame(body)


def _frame(body: bytes) -> Frame:
    try:
        frame = msgpack.unpackb(body, strict_map_key=False)
    except (ValueError, TypeError) as error:
        raise ExecutorError(f"a process sent what is no message: {error!r}") from error
    if not isinstance(frame, list) or not frame:
        raise ExecutorError("a process sent what is no message")
    return frame  # pyright: ignore[reportUnknownVariableType]
