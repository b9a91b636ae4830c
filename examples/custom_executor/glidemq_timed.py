"""An executor in a separate package. It runs coroutine functions, and records the run time of each kind of job."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from glidemq_async import Job
from glidemq_async.executors import Handler, InlineExecutor

seconds: defaultdict[str, list[float]] = defaultdict(list)
"""Run times by job name."""


class TimedExecutor:
    """Delegate to another executor. An executor needs only `start`, `run`, `stop` and `occupied`."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self._inner = InlineExecutor()

    @property
    def occupied(self) -> int:
        """Return the number of slots that abandoned runs occupy: 0, because coroutines can be cancelled."""
        return self._inner.occupied

    def check_handler(self, handler: Handler) -> None:
        """Optional: refuse a handler before the worker starts."""
        if not iscoroutinefunction(handler):
            raise TypeError(f"{handler!r} must be a coroutine function")

    async def start(self, freed: Callable[[], None]) -> None:
        """Start the inner executor."""
        await self._inner.start(freed)

    async def run(self, handler: Handler, job: Job[Any, Any], timeout: float | None) -> object:
        """Run one job."""
        began = time.perf_counter()
        try:
            return await self._inner.run(handler, job, timeout)
        finally:
            seconds[job.name].append(time.perf_counter() - began)

    async def stop(self, grace: float) -> None:
        """Stop the inner executor."""
        await self._inner.stop(grace)
