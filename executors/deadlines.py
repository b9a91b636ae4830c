"""Deadlines of runs. The clock of a run is paused while the run waits for a free place in an executor."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final

from glidemq_async.jobs.abort import set_abort
from glidemq_async.jobs.job import Job

_current: Final[ContextVar[Deadline | None]] = ContextVar("glidemq_deadline", default=None)


class Deadline:
    """Ends its block with TimeoutError after `timeout` seconds. Time inside `waiting` does not count.

    The abort signal is set before anything is cancelled.
    """

    # A class and not a generator behind `asynccontextmanager`, which costs 7,000 instructions more for each job with a
    # timeout.
    __slots__ = ("_began", "_expired", "_job", "_left", "_loop", "_timeout", "_timer", "_token")

    def __init__(self, job: Job[Any, Any], timeout: float) -> None:
        self._job = job
        self._timeout = self._left = timeout
        self._expired = asyncio.timeout(None)
        self._loop = asyncio.get_running_loop()
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        self._token = _current.set(self)
        await self._expired.__aenter__()
        self.resume()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._expired.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise self._error() from late
        finally:
            self.pause()
            _current.reset(self._token)
        # A handler may answer its cancellation with a TimeoutError, for example one of a library.
        if isinstance(error, TimeoutError) and self._expired.expired():
            raise self._error() from error

    def _error(self) -> TimeoutError:
        return TimeoutError(f"the run took longer than its timeout of {self._timeout:g} s")

    def resume(self) -> None:
        """Start or resume the clock."""
        self._began = self._loop.time()
        self._timer = self._loop.call_later(max(self._left, 0.0), self._expire)

    def pause(self) -> None:
        """Pause the clock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left -= self._loop.time() - self._began

    def _expire(self) -> None:
        set_abort(self._job.abort, "timeout")
        # Not `task.cancel()`: only asyncio.timeout can later distinguish its own cancellation from one by the worker.
        self._expired.reschedule(self._loop.time())


@contextmanager
def waiting() -> Generator[None]:
    """Pause the deadline of the run while its executor waits for a free place."""
    found = _current.get()
    if found is None:
        yield
        return
    found.pause()
    try:
        yield
    finally:
        found.resume()
