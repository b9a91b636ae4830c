"""The worker's end of a channel: frames in the event loop."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from glidemq_async.errors import ExecutorError
from glidemq_async.executors.subprocess.frames import Frame, Splitter, packed

_ENOUGH: Final = 32
"""Frames that may wait to be looked at before no more are read."""


class Channel(asyncio.Protocol):
    """Frames to and from one process. `broken` says what was wrong with the last bytes, if something was."""

    def __init__(self, limit: int, ended: Callable[[], None], aside: Callable[[Frame], bool]) -> None:
        self._splitter = Splitter(limit)
        self._aside = aside
        self._ended = ended
        self._frames: deque[Frame] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self.is_open = True
        self.broken: ExecutorError | None = None

    @classmethod
    async def over(
        cls,
        sock: socket.socket,
        limit: int,
        *,
        ended: Callable[[], None] = lambda: None,
        aside: Callable[[Frame], bool] = lambda _: False,
    ) -> Channel:
        """Open a channel over a socket, which belongs to it from now on; `ended` is called when its peer is gone.

        `aside` sees each frame when it arrives; one that it takes (True) nobody receives.
        """
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_unix_connection(lambda: cls(limit, ended, aside), sock=sock)
        return protocol

    def send(self, *frame: object) -> None:
        """Send a frame; one to a peer that is gone is dropped. Raises ExecutorError for one that is too large."""
        data = packed(*frame)
        if self._transport is not None and self.is_open:
            self._transport.write(data)

    def take_at_most(self, limit: int) -> None:
        """Refuse frames of more than `limit` bytes from now on."""
        self._splitter.limit = limit

    async def receive(self) -> Frame | None:
        """Wait for the next frame; None when there will be none. For one waiter at a time."""
        while not self._frames:
            if not self.is_open:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        frame = self._frames.popleft()
        if self._is_paused and not self._frames and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return frame

    def close(self) -> None:
        """Close the channel; what has arrived can still be received."""
        if self._transport is not None:
            self._transport.abort()

    # -- called by the transport ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Cut it into frames; a peer that sends anything else is cut off."""
        try:
            self._frames.extend(frame for frame in self._splitter.feed(data) if not self._aside(frame))
        except ExecutorError as error:
            self.broken = error
            self.close()
        if len(self._frames) > _ENOUGH and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._tell()

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        del exc
        self.is_open = False
        self._tell()
        self._ended()

    def _tell(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
