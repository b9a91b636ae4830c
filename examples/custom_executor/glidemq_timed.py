"""An executor of a package of its own: it runs coroutine functions, and keeps how long each kind of job took."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from glidemq_async import Job
from glidemq_async.executors import Handler, InlineExecutor

seconds: defaultdict[str, list[float]] = defaultdict(list)
"""How long runs took, by the name of their job."""


class TimedExecutor:
    """Lets another executor do the work: `start`, `run` and `stop` are all that an executor needs."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self._inner = InlineExecutor()

    @property
    def occupied(self) -> int:
        """Slots of runs that were given up but still go on: none, coroutines can be cancelled."""
        return self._inner.occupied

    def check_handler(self, handler: Handler) -> None:
        """Optional: refuse a handler before the worker starts."""
        if not iscoroutinefunction(handler):
            raise TypeError(f"{handler!r} must be a coroutine function")

    async def start(self, freed: Callable[[], None]) -> None:
        """Get ready."""
        await self._inner.start(freed)

    async def run(self, handler: Handler, job: Job[Any, Any], timeout: float | None) -> object:
        """Run one job."""
        began = time.perf_counter()
        try:
            return await self._inner.run(handler, job, timeout)
        finally:
            seconds[job.name].append(time.perf_counter() - began)

    async def stop(self, grace: float) -> None:
        """End what still runs."""
        await self._inner.stop(grace)
