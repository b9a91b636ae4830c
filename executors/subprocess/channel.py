"""The worker's end of a channel: frames in the event loop.

Its peer runs the code of jobs and may be hostile, so all work that it can cause in the worker is limited: the size of a
frame, frames and bytes per second, waiting frames, and unread replies. A peer that reaches a limit stays connected. The
worker stops reading, and the peer blocks when its socket is full.
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
"""Gets each frame and its size in bytes on arrival. If it returns True, `receive` skips the frame."""

_ENOUGH: Final = 32
"""Number of waiting frames at which the channel stops reading."""
_AT_ONCE: Final = 64
"""Number of frames after which other work of the event loop gets a turn."""
_WINDOW: Final = 1.0
"""Length in seconds of the window in which a flow is counted."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Limits of the frames and bytes that are read from one process per second."""

    frames: int
    bytes: int


class Channel(asyncio.Protocol):
    """Frames to and from one process. `broken` is the error of an invalid frame, if there was one."""

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
        """True while the peer does not read; see `drained`."""
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
        """Open a channel over a socket, which the channel then owns. `ended` is called when the peer is gone.

        Frames of more than `limit` bytes break the channel. `flow` limits reading per second; None: no limit.
        """
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_unix_connection(lambda: cls(limit, ended, aside, flow), sock=sock)
        return protocol

    def send(self, *frame: object) -> None:
        """Send a frame, or drop it if the peer is gone. Raises ExecutorError for a frame that is too large."""
        data = packed(*frame)
        if self._transport is not None and self.is_open:
            self._transport.write(data)

    async def drained(self) -> None:
        """Wait until the peer has read most of the sent data, or is gone. For one waiter at a time."""
        while self.is_full and self.is_open:
            self._drained = asyncio.get_running_loop().create_future()
            try:
                await self._drained
            finally:
                self._drained = None

    def begin(self, limit: int) -> None:
        """Begin a run: drop frames of the previous run, and refuse frames of more than `limit` bytes from now on."""
        # The previous job may have filled the queue with frames, and reading is then paused. Dropping the frames makes
        # room, so cutting must continue here. `receive` would not resume it, because it does so only after it has taken
        # a frame.
        self._splitter.limit = limit
        self._counted = self._received = 0
        self._since = None
        if self._frames:
            self._frames.clear()
            self._cut()

    async def receive(self) -> Frame | None:
        """Wait for the next frame. Return None when the peer is gone. For one waiter at a time."""
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
        """Close the channel. Frames that have arrived can still be received."""
        if self._transport is not None:
            self._transport.abort()

    # -- called by the transport ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Split the data into frames. Invalid data closes the channel."""
        self._received += len(data)
        self._splitter.add(data)
        if self._later is None:
            self._cut()

    def pause_writing(self) -> None:
        """Note that the peer does not keep up."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Note that the peer has read most of the sent data."""
        self.is_full = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the peer is gone. Frames that it sent before can still be received."""
        del exc
        self.is_open = False
        if self._later is not None:
            self._later.cancel()
            self._later = None
        # The outcome is often the last frame before a process ends. It must be received before the end counts as a
        # death.
        self._read_the_rest()
        self.resume_writing()
        self._notify()
        self._ended()

    # -- cutting ----------------------------------------------------------------------------------------------------

    def _cut(self) -> None:
        """Split received data into frames, and continue to read now or later, as the limits permit."""
        # A child may send frames without end. Three limits keep the worker's event loop free for others, and each one
        # stops this loop in another way:
        #
        # - 64 frames per turn: continue in the next turn (`call_soon`).
        # - The flow of the second is used up: continue when the second is over (`call_later`).
        # - 32 frames wait for `receive`: continue when it has taken the last of them.
        #
        # In all three cases the transport stops reading. The kernel's buffers fill up, and the child blocks in its own
        # `send`. No frame is lost. `_later` shows that a continuation is scheduled, and `data_received` then only
        # stores its bytes.
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
        self._notify()

    def _over_flow(self) -> float:
        """Return the seconds for which reading must pause, 0 while the flow is within its limits."""
        flow = self._flow
        if flow is None or (self._counted < flow.frames and self._received < flow.bytes):
            return 0.0
        now = asyncio.get_running_loop().time()
        if self._since is not None and now < self._since + _WINDOW:
            return self._since + _WINDOW - now
        # The first window of a run ends here, whenever it began, so a run that sends little never reads the clock.
        self._since, self._counted, self._received = now, 0, 0
        return 0.0

    def _pause(self, wait: float | None) -> None:
        """Pause reading for `wait` seconds; None: until the waiting frames have been received."""
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
        """Split the data that arrived before the end, up to the limit of one turn. No more data will arrive."""
        try:
            for _ in range(_AT_ONCE):
                frame = self._splitter.cut()
                if frame is None:
                    return
                if not self._aside(frame, self._splitter.last_size):
                    self._frames.append(frame)
        except ExecutorError as error:
            self.broken = self.broken or error

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
