"""The output of a child: lines of the job that it runs, or bytes that the worker passes on to its own output.

A child never gets the worker's descriptors. It could truncate the worker's log file through them, write anywhere into
it, and make the worker's own writes fail by setting O_NONBLOCK, which belongs to the open file and not to a process.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from glidemq_async.errors import GlideMQError
from glidemq_async.jobs.job import Job

MOST_LINES: Final = 1_000
"""As many as a job's log keeps."""
LONGEST_LINE: Final = 8_192
MOST_BYTES_A_SECOND: Final = 4 * 2**20
"""Bytes that are passed on from one stream; a child that writes more waits."""
_CHUNK: Final = 65_536
_MOST_AT_ONCE: Final = 16
"""Chunks read before other work gets a turn."""
_SURE: Final = 4_096
"""Bytes that a writable pipe takes without blocking the writer (PIPE_BUF)."""
_LAST_READS: Final = 256
"""Reads that empty the largest pipe, 1 MiB."""
_PAUSE: Final = 0.02
"""Seconds until a worker's output that takes nothing now is tried again."""
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")


class Output(Protocol):
    """Where the output of a child goes."""

    @property
    def writing(self) -> list[int]:
        """The descriptors that the child gets: one for both streams, or one for each."""
        ...

    def give_away(self) -> None:
        """Close the ends that belong to the child."""
        ...

    def begin(self, job: Job[Any, Any]) -> None:
        """A run begins."""
        ...

    async def end(self) -> None:
        """The run has ended, and all of its output is in the pipes."""
        ...

    def gone(self) -> None:
        """The child has ended."""
        ...


class Passing:
    """Passes stdout and stderr of a child on to those of the worker.

    `is_plain` replaces control characters, so that a job cannot send commands to a terminal.
    """

    def __init__(self, *, is_plain: bool) -> None:
        self._streams = [_Stream(target, is_plain=is_plain) for target in (1, 2)]

    @property
    def writing(self) -> list[int]:
        """The descriptors for stdout and stderr."""
        return [stream.writing for stream in self._streams]

    def give_away(self) -> None:
        """Close the ends that belong to the child, and begin to read."""
        for stream in self._streams:
            os.close(stream.writing)
            stream.listen()

    def begin(self, job: Job[Any, Any]) -> None:
        """Output belongs to no job here."""

    async def end(self) -> None:
        """Output belongs to no job here."""

    def gone(self) -> None:
        """Pass on what is left, and close the pipes."""
        for stream in self._streams:
            stream.finish()


class _Stream:
    """One pipe, and the descriptor of the worker to which its bytes go."""

    def __init__(self, target: int, *, is_plain: bool) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._target = target
        self._is_plain = is_plain
        self._loop = asyncio.get_running_loop()
        self._spent = 0
        self._since = 0.0
        self._later: asyncio.TimerHandle | None = None

    def listen(self) -> None:
        """Pass on what comes from now on."""
        self._later = None
        if self._reading >= 0:
            self._loop.add_reader(self._reading, self._pass_some)

    def _pass_some(self) -> None:
        wait = self._wait()
        for _ in range(_MOST_AT_ONCE):
            if wait:
                break
            try:
                data = os.read(self._reading, _SURE)
            except BlockingIOError:
                return
            if not data:
                self._close()
                return
            self._write(data)
            wait = self._wait()
        if wait:
            self._loop.remove_reader(self._reading)
            self._later = self._loop.call_later(wait, self.listen)

    def _wait(self) -> float:
        """Return for how many seconds nothing may be passed on."""
        if self._spent >= MOST_BYTES_A_SECOND:
            left = self._since + 1.0 - self._loop.time()
            if left > 0:
                return left
        if self._loop.time() >= self._since + 1.0:
            self._since, self._spent = self._loop.time(), 0
        return 0.0 if _is_writable(self._target) else _PAUSE

    def _write(self, data: bytes) -> None:
        self._spent += len(data)
        if self._is_plain:
            data = _CONTROL.sub(_shown, data)
        # A worker without an output loses that of its jobs.
        with suppress(OSError):
            while data:
                data = data[os.write(self._target, data[:_SURE]) :]

    def finish(self) -> None:
        """Pass on what the child has left in the pipe, as far as it is taken without waiting, and close it."""
        with suppress(BlockingIOError):
            # Not for ever: a process that the child has left behind may go on writing until it is killed.
            for _ in range(_LAST_READS):
                if self._reading < 0 or not _is_writable(self._target):
                    break
                data = os.read(self._reading, _SURE)
                if not data:
                    break
                self._write(data)
        self._close()

    def _close(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._reading >= 0:
            self._loop.remove_reader(self._reading)
            os.close(self._reading)
            self._reading = -1


def _is_writable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


def _shown(found: re.Match[bytes]) -> bytes:
    return b"\\x%02x" % found[0][-1]


class Captured:
    """One pipe, whose lines are logged in the job.

    What a run has written is in it before the run's end is told, so that nothing is missed.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._lines: deque[str] = deque()
        self._left_out = 0
        self._part = b""
        self._job: Job[Any, Any] | None = None
        self._logging: asyncio.Task[None] | None = None
        self._is_gone = False

    @property
    def writing(self) -> list[int]:
        """The descriptor for both streams."""
        return [self._writing]

    def give_away(self) -> None:
        """Close the end that belongs to the child."""
        os.close(self._writing)

    def begin(self, job: Job[Any, Any]) -> None:
        """Log what comes from now on in this job; what came in between belongs to none."""
        self._read()
        self._lines.clear()
        self._left_out = 0
        self._part = b""
        self._job = job
        asyncio.get_running_loop().add_reader(self._reading, self._read)

    async def end(self) -> None:
        """Log what the run has written up to its end."""
        asyncio.get_running_loop().remove_reader(self._reading)
        self._read()
        if self._part:
            self._take([self._part])
            self._part = b""
        if self._lines or self._logging:
            self._log_soon()
        if self._logging is not None:
            await self._logging
        self._job = None
        if self._is_gone:
            self._close()

    def gone(self) -> None:
        """The child has ended; the pipe is closed when the last run's output was read."""
        self._is_gone = True
        if self._job is None:
            self._close()

    def _close(self) -> None:
        if self._reading >= 0:
            os.close(self._reading)
            self._reading = -1

    def _read(self) -> None:
        for _ in range(_MOST_AT_ONCE):
            try:
                data = os.read(self._reading, _CHUNK)
            except BlockingIOError:
                break
            if not data:  # the child is gone
                asyncio.get_running_loop().remove_reader(self._reading)
                break
            *whole, self._part = (self._part + data).split(b"\n")
            self._part = self._part[:LONGEST_LINE]
            self._take(whole)
        if self._lines and self._job is not None:
            self._log_soon()

    def _take(self, lines: list[bytes]) -> None:
        self._lines.extend(_text(line) for line in lines)
        # One less than the log keeps, so that the line that counts the others stays in it.
        while len(self._lines) >= MOST_LINES:
            self._lines.popleft()
            self._left_out += 1

    def _log_soon(self) -> None:
        if self._logging is None or self._logging.done():
            self._logging = asyncio.create_task(self._log())

    async def _log(self) -> None:
        while self._lines and self._job is not None:
            try:
                if self._left_out:
                    number, self._left_out = self._left_out, 0
                    await self._job.log(f"… {number} lines of output were left out here")
                await self._job.log(self._lines.popleft())
            except GlideMQError:  # the run has lost its job, or the store is away: the run's own end tells more
                self._lines.clear()


def _text(line: bytes) -> str:
    return line[:LONGEST_LINE].decode(errors="replace").rstrip("\r")


def output_of(*, captured: bool, is_plain: bool) -> Callable[[], Output]:
    """Return what makes the output of a child."""
    return Captured if captured else lambda: Passing(is_plain=is_plain)
