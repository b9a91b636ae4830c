"""What a child writes to stdout and stderr, as lines of the job that it runs."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import Any, Final

from glidemq_async.errors import GlideMQError
from glidemq_async.job import Job

MOST_LINES: Final = 1_000
"""As many as a job's log keeps."""
LONGEST_LINE: Final = 8_192
_CHUNK: Final = 65_536
_MOST_AT_ONCE: Final = 16
"""Chunks read before other work gets a turn."""


class Output:
    """One pipe. What a run has written is in it before the run's end is told, so that nothing is missed."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._part = b""
        self._job: Job[Any, Any] | None = None
        self._logging: asyncio.Task[None] | None = None
        self._is_gone = False

    def give_away(self) -> None:
        """Close the end that belongs to the child."""
        os.close(self.writing)

    def begin(self, job: Job[Any, Any]) -> None:
        """Log what comes from now on in this job; what came in between belongs to none."""
        self._read()
        self._lines.clear()
        self._part = b""
        self._job = job
        asyncio.get_running_loop().add_reader(self._reading, self._read)

    async def end(self) -> None:
        """Log what the run has written up to its end."""
        asyncio.get_running_loop().remove_reader(self._reading)
        self._read()
        if self._part:
            self._lines.append(_text(self._part))
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
            self._lines.extend(_text(line) for line in whole)
        if self._lines and self._job is not None:
            self._log_soon()

    def _log_soon(self) -> None:
        if self._logging is None or self._logging.done():
            self._logging = asyncio.create_task(self._log())

    async def _log(self) -> None:
        while self._lines and self._job is not None:
            try:
                await self._job.log(self._lines.popleft())
            except GlideMQError:  # the run has lost its job, or the store is away: the run's own end tells more
                self._lines.clear()


def _text(line: bytes) -> str:
    return line[:LONGEST_LINE].decode(errors="replace").rstrip("\r")
