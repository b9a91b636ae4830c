"""The output of a child: either log lines of its job, or bytes that the worker passes on to its own output.

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
"""Maximum number of lines, the same as in a job's log."""
LONGEST_LINE: Final = 8_192
MOST_BYTES_A_SECOND: Final = 4 * 2**20
"""Maximum of bytes that are passed on from one stream per second. A child that writes more waits."""
_CHUNK: Final = 65_536
_MOST_AT_ONCE: Final = 16
"""Number of chunks after which other work gets a turn."""
_SURE: Final = 4_096
"""Bytes that a writable pipe takes without blocking the writer (PIPE_BUF)."""
_LAST_READS: Final = 256
"""Reads that empty the largest pipe, 1 MiB."""
_PAUSE: Final = 0.02
"""Seconds until the next try when the worker's output is not writable."""
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")


class Output(Protocol):
    """The destination of a child's output."""

    @property
    def writing(self) -> list[int]:
        """The descriptors for the child: one for both streams, or one for each."""
        ...

    def close_child_ends(self) -> None:
        """Close the worker's copies of the child's ends."""
        ...

    def begin(self, job: Job[Any, Any]) -> None:
        """Begin a run."""
        ...

    async def end(self) -> None:
        """End the run. All of its output is already in the pipes."""
        ...

    def gone(self) -> None:
        """Finish after the child has ended."""
        ...


class Passing:
    """Passes stdout and stderr of a child on to the worker's own streams.

    `is_plain` replaces control characters, so that a job cannot send commands to a terminal.
    """

    def __init__(self, *, is_plain: bool) -> None:
        self._streams = [_Stream(target, is_plain=is_plain) for target in (1, 2)]

    @property
    def writing(self) -> list[int]:
        """The descriptors for stdout and stderr."""
        return [stream.writing for stream in self._streams]

    def close_child_ends(self) -> None:
        """Close the worker's copies of the child's ends, and begin to read."""
        for stream in self._streams:
            os.close(stream.writing)
            stream.listen()

    def begin(self, job: Job[Any, Any]) -> None:
        """Do nothing: output is not assigned to jobs."""

    async def end(self) -> None:
        """Do nothing: output is not assigned to jobs."""

    def gone(self) -> None:
        """Pass on the remaining output, and close the pipes."""
        for stream in self._streams:
            stream.finish()


class _Stream:
    """One pipe, and the descriptor of the worker that receives its bytes."""

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
        """Pass on output from now on."""
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
        """Return the seconds for which passing on must pause."""
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
        # Without an output of the worker, the output of its jobs is lost.
        with suppress(OSError):
            while data:
                data = data[os.write(self._target, data[:_SURE]) :]

    def finish(self) -> None:
        """Pass on the rest of the pipe as far as that is possible without waiting, and close the pipe."""
        with suppress(BlockingIOError):
            # Bounded, because a process that the child left behind may continue to write until it is killed.
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
    """One pipe whose lines are logged in the job.

    All output of a run is in the pipe before the end of the run is reported, so no line is missed.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._part = b""
        self._job: Job[Any, Any] | None = None
        self._logging: asyncio.Task[None] | None = None
        self._is_gone = False

    @property
    def writing(self) -> list[int]:
        """The descriptor for both streams."""
        return [self._writing]

    def close_child_ends(self) -> None:
        """Close the worker's copy of the child's end."""
        os.close(self._writing)

    def begin(self, job: Job[Any, Any]) -> None:
        """Log output in this job from now on. Output since the previous run is discarded."""
        self._read()
        self._lines.clear()
        self._dropped = 0
        self._part = b""
        self._job = job
        asyncio.get_running_loop().add_reader(self._reading, self._read)

    async def end(self) -> None:
        """Log the rest of the run's output."""
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
        """Note that the child has ended. The pipe is closed after the output of the last run was read."""
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
            # A job may write gigabytes without a line break. Only the part that can be logged is kept.
            self._part = self._part[:LONGEST_LINE]
            self._take(whole)
        if self._lines and self._job is not None:
            self._log_soon()

    def _take(self, lines: list[bytes]) -> None:
        self._lines.extend(_text(line) for line in lines)
        # One line less than the log keeps, so that the line with the number of dropped lines stays in it.
        while len(self._lines) >= MOST_LINES:
            self._lines.popleft()
            self._dropped += 1

    def _log_soon(self) -> None:
        if self._logging is None or self._logging.done():
            # One task at a time, so that the lines of a job stay in order. It belongs to no task group: `end` awaits
            # it, and the run cannot return before its last line is logged.
            self._logging = asyncio.create_task(self._log())

    async def _log(self) -> None:
        while self._lines and self._job is not None:
            try:
                if self._dropped:
                    number, self._dropped = self._dropped, 0
                    await self._job.log(f"… {number} lines of output were dropped here")
                await self._job.log(self._lines.popleft())
            except GlideMQError:  # job lost, or server unreachable: the end of the run reports it
                self._lines.clear()


def _text(line: bytes) -> str:
    return line[:LONGEST_LINE].decode(errors="replace").rstrip("\r")


def output_of(*, captured: bool, is_plain: bool) -> Callable[[], Output]:
    """Return a factory for the output of a child."""
    return Captured if captured else lambda: Passing(is_plain=is_plain)
