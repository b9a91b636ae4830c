"""Frames between worker, guard and children: msgpack lists, each preceded by its length in four bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgpack

from glidemq_async.errors import ExecutorError

PROTOCOL: Final = 5
"""Increase this with every change of a frame. The guard and each child send it first; the worker refuses another."""
ANY_SIZE: Final = 2**31 - 1
CHUNK: Final = 256 * 1024

Frame: TypeAlias = list[Any]

_LENGTH: Final = struct.Struct(">I")


def packed(*frame: object) -> bytes:
    """Return the bytes of a frame. Raises ExecutorError if it is too large for any peer."""
    body: bytes = msgpack.packb(frame)
    if len(body) > ANY_SIZE:
        raise ExecutorError(f"a message of {len(body)} bytes is too large to be sent to another process")
    return _LENGTH.pack(len(body)) + body


class Splitter:
    """Splits received bytes into frames of at most `limit` bytes."""

    def __init__(self, limit: int = ANY_SIZE) -> None:
        self.limit = limit
        self.last_size = 0
        """Size in bytes of the last frame."""
        self._left = bytearray()

    def add(self, data: bytes) -> None:
        """Add received bytes."""
        self._left += data

    def cut(self) -> Frame | None:
        """Return the next frame, None if it is not complete. Raises ExecutorError for an invalid or too large one."""
        if len(self._left) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(self._left)
        # Checked as soon as the length has arrived. Otherwise a hostile child could announce two gigabytes and make the
        # worker collect them first.
        if size > self.limit:
            raise ExecutorError(f"a process sent a message of {size} bytes, the limit is {self.limit}")
        end = _LENGTH.size + size
        if len(self._left) < end:
            return None
        with memoryview(self._left) as view:
            body = bytes(view[_LENGTH.size : end])
        del self._left[:end]
        self.last_size = size
        return _frame(body)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add received bytes and yield complete frames. Raises ExecutorError for an invalid or too large one."""
        self.add(data)
        while (frame := self.cut()) is not None:
            yield frame


def _frame(body: bytes) -> Frame:
    try:
        frame = msgpack.unpackb(body, strict_map_key=False)
    except (ValueError, TypeError) as error:
        raise ExecutorError(f"a process sent an invalid message: {error!r}") from error
    if not isinstance(frame, list) or not frame:
        raise ExecutorError("a process sent an invalid message: it is not a list")
    return frame  # pyright: ignore[reportUnknownVariableType]
