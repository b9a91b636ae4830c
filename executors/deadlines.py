"""The time of a run that is more than its function: it stands still while the run waits for a place in a tier."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Final

from glidemq_async.jobs.job import Job

_current: Final[ContextVar[Deadline | None]] = ContextVar("glidemq_deadline", default=None)


class Deadline:
    """Ends the block it is made for with TimeoutError; the abort signal is set before anything is cancelled."""

    def __init__(self, job: Job[Any, Any], timeout: float, expired: asyncio.Timeout) -> None:
        self._job = job
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self._left = timeout
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def go_on(self) -> None:
        """Let time pass."""
        self._began = self._loop.time()
        self._timer = self._loop.call_later(max(self._left, 0.0), self._expire)

    def stand_still(self) -> None:
        """Let no time pass."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left -= self._loop.time() - self._began

    def _expire(self) -> None:
        self._job.abort.set("timeout")
        self._expired.reschedule(self._loop.time())


@asynccontextmanager
async def deadline(job: Job[Any, Any], timeout: float) -> AsyncGenerator[None]:
    """End the block with TimeoutError when it has taken `timeout` seconds, those of `waiting` not counted."""
    expired = asyncio.timeout(None)
    found = Deadline(job, timeout, expired)
    token = _current.set(found)
    try:
        async with expired:
            found.go_on()
            yield
    except TimeoutError as error:
        if not expired.expired():
            raise
        raise TimeoutError(f"the run took longer than its timeout of {timeout:g} s") from error
    finally:
        found.stand_still()
        _current.reset(token)


@contextmanager
def waiting() -> Generator[None]:
    """Around an executor's wait for a free place: what it takes does not count as time of the run."""
    found = _current.get()
    if found is None:
        yield
        return
    found.stand_still()
    try:
        yield
    finally:
        found.go_on()
