"""The worker's end of a channel: frames in the event loop.

Its peer runs the code of jobs and may be hostile, so everything it can make the worker do is bounded: the size of a
frame, frames and bytes per second, frames that wait, and answers that it does not read. A peer that reaches a bound is
not cut off. The worker stops reading, and the peer waits when its socket is full.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from glidemq_async.errors import ExecutorError
from glidemq_async.executors.subprocess.frames import Frame, Splitter, packed

Aside: TypeAlias = Callable[[Frame, int], bool]
"""Sees each frame and its size in bytes when it arrives; nobody receives a frame for which it returns True."""

_ENOUGH: Final = 32
"""Frames that may wait to be looked at before no more are read."""
_AT_ONCE: Final = 64
"""Frames that are cut before other work of the event loop gets a turn."""
_WINDOW: Final = 1.0
"""Seconds for which a flow is counted."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The frames and bytes that are read from one process per second."""

    frames: int
    bytes: int


class Channel(asyncio.Protocol):
    """Frames to and from one process. `broken` says what was wrong with the last bytes, if something was."""

    def __init__(self, limit: int, ended: Callable[[], None], aside: Aside, flow: Flow | None) -> None:
        self._splitter = Splitter(limit)
        self._aside = aside
        self._ended = ended
        self._flow = flow
        self._counted = 0
        self._received = 0
        self._since: float | None = None
        self._frames: deque[Frame] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._later: asyncio.Handle | None = None
        self._drained: asyncio.Future[None] | None = None
        self.is_open = True
        self.is_full = False
        """Whether the peer has not read what was sent; see `drained`."""
        self.broken: ExecutorError | None = None

    @classmethod
    async def over(
        cls,
        sock: socket.socket,
        limit: int,
        *,
        ended: Callable[[], None] = lambda: None,
        aside: Aside = lambda _frame, _size: False,
        flow: Flow | None = None,
    ) -> Channel:
        """Open a channel over a socket, which belongs to it from now on; `ended` is called when its peer is gone.

        Frames of more than `limit` bytes break the channel. No more than `flow` is read per second; None: everything.
        """
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_unix_connection(lambda: cls(limit, ended, aside, flow), sock=sock)
        return protocol

    def send(self, *frame: object) -> None:
        """Send a frame; one to a peer that is gone is dropped. Raises ExecutorError for one that is too large."""
        data = packed(*frame)
        if self._transport is not None and self.is_open:
            self._transport.write(data)

    async def drained(self) -> None:
        """Wait until the peer has read most of what was sent, or is gone. For one waiter at a time."""
        while self.is_full and self.is_open:
            self._drained = asyncio.get_running_loop().create_future()
            try:
                await self._drained
            finally:
                self._drained = None

    def begin(self, limit: int) -> None:
        """Begin a run: drop what came since the last one, and refuse frames of more than `limit` bytes from now on."""
        self._splitter.limit = limit
        self._counted = self._received = 0
        self._since = None
        if self._frames:
            self._frames.clear()
            self._cut()

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
        if self._is_paused and not self._frames and self._later is None:
            self._later = asyncio.get_running_loop().call_soon(self._cut)
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
        self._received += len(data)
        self._splitter.add(data)
        if self._later is None:
            self._cut()

    def pause_writing(self) -> None:
        """Note that the peer does not keep up."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Note that the peer has read most of what was sent."""
        self.is_full = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone. What it has sent before can still be received."""
        del exc
        self.is_open = False
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._read_the_rest()
        self.resume_writing()
        self._tell()
        self._ended()

    # -- cutting ----------------------------------------------------------------------------------------------------

    def _cut(self) -> None:
        """Cut frames from what has arrived, and read on, or later, as the bounds allow it."""
        self._later = None
        frames, wait, left = self._frames, 0.0, _AT_ONCE
        try:
            while left and len(frames) < _ENOUGH and not (wait := self._over_flow()):
                frame = self._splitter.cut()
                if frame is None:
                    self._read_on()
                    break
                left -= 1
                self._counted += 1
                if not self._aside(frame, self._splitter.last_size):
                    frames.append(frame)
            else:
                self._pause(None if len(frames) >= _ENOUGH else wait)
        except ExecutorError as error:
            self.broken = error
            self.close()
        self._tell()

    def _over_flow(self) -> float:
        """Return for how many seconds nothing more may be read; 0 while the flow allows it."""
        flow = self._flow
        if flow is None or (self._counted < flow.frames and self._received < flow.bytes):
            return 0.0
        now = asyncio.get_running_loop().time()
        if self._since is not None and now < self._since + _WINDOW:
            return self._since + _WINDOW - now
        # The first window of a run ends here whenever it began: a run that sends little never looks at the clock.
        self._since, self._counted, self._received = now, 0, 0
        return 0.0

    def _pause(self, wait: float | None) -> None:
        """Read nothing for a while; None: until what waits has been received."""
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        if wait is not None:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(wait, self._cut) if wait else loop.call_soon(self._cut)

    def _read_on(self) -> None:
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            if self.is_open:
                self._transport.resume_reading()

    def _read_the_rest(self) -> None:
        """Cut what has arrived before the end, within the bounds of one turn: nothing after it is waited for."""
        try:
            for _ in range(_AT_ONCE):
                frame = self._splitter.cut()
                if frame is None:
                    return
                if not self._aside(frame, self._splitter.last_size):
                    self._frames.append(frame)
        except ExecutorError as error:
            self.broken = self.broken or error

    def _tell(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
