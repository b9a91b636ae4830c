"""The inline executor: coroutine handlers run in the worker's own event loop. Fastest; for trusted async code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from glidemq_async.executors.deadlines import Deadline
from glidemq_async.executors.protocol import Handler
from glidemq_async.jobs.job import Job


class InlineExecutor:
    """Awaits the handler in the loop. A timeout or an abort cancels it with CancelledError."""

    runs_here: Final = True
    awaits_handlers: Final = True
    is_elastic: Final = True

    @property
    def occupied(self) -> int:
        """Always 0: a cancelled coroutine frees its slot when it ends."""
        return 0

    def may_share(self, job: Job[Any, Any]) -> bool:  # noqa: ARG002
        """Return True: a run only awaits its handler."""
        return True

    async def start(self, freed: Callable[[], None]) -> None:
        """Do nothing: this executor needs no preparation."""

    async def run(self, handler: Handler, job: Job[Any, Any], timeout: float | None) -> object:
        """Await the handler, cancelled after `timeout` seconds (then TimeoutError)."""
        if timeout is None:
            return await handler(job)
        # The abort signal is set before the handler is cancelled: a thread that it waits for may check only the signal.
        async with Deadline(job, timeout):
            return await handler(job)

    async def stop(self, grace: float) -> None:
        """Do nothing: the worker cancels its runs."""
