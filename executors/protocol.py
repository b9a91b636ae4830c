"""The executor protocol: run one job's handler under a deadline and an abort signal, and stop in two phases.

Claiming, retries and settling are the worker's business; it knows this protocol and no concrete executor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from glidemq_async.job import Job

Handler: TypeAlias = Callable[[Job[Any, Any]], Any]
"""A processor: a coroutine function or a plain function of one job."""


@runtime_checkable
class Executor(Protocol):
    """Runs handlers. One executor serves one worker, in the worker's event loop."""

    @property
    def occupied(self) -> int:
        """Slots still taken by runs that were given up but cannot be interrupted (threads)."""
        ...

    async def start(self, freed: Callable[[], None]) -> None:
        """Get ready; called once before the first run. Call `freed` in the loop whenever `occupied` has fallen."""
        ...

    async def run(self, handler: Handler, job: Job[Any, Any], timeout: float | None) -> object:
        """Run the handler and return its value or raise what it raises.

        After `timeout` seconds the run is ended as forcefully as the executor can, and TimeoutError is raised.
        Cancelling this call means the same: end the run. Who cancels has set `job.abort` before; at a timeout
        the executor sets it.
        """
        ...

    async def stop(self, grace: float) -> None:
        """Ask what still runs to end, and after `grace` seconds end it as forcefully as possible."""
        ...
