"""Deadlines of runs. The clock of a run is paused while the run waits for a free place in an executor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Final

from glidemq_async.jobs.abort import set_abort
from glidemq_async.jobs.job import Job

_current: Final[ContextVar[Deadline | None]] = ContextVar("glidemq_deadline", default=None)


class Deadline:
    """Ends its block with TimeoutError. The abort signal is set before anything is cancelled."""

    def __init__(self, job: Job[Any, Any], timeout: float, expired: asyncio.Timeout) -> None:
        self._job = job
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self._left = timeout
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None

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


@asynccontextmanager
async def deadline(job: Job[Any, Any], timeout: float) -> AsyncGenerator[None]:
    """End the block with TimeoutError after `timeout` seconds. Time inside `waiting` does not count."""
    # Without a fixed time: the clock of a run pauses while it waits for a place, and asyncio.timeout cannot pause.
    expired = asyncio.timeout(None)
    found = Deadline(job, timeout, expired)
    token = _current.set(found)
    try:
        async with expired:
            found.resume()
            yield
    except TimeoutError as error:
        if not expired.expired():
            raise
        raise TimeoutError(f"the run took longer than its timeout of {timeout:g} s") from error
    finally:
        found.pause()
        _current.reset(token)


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
