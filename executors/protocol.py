"""The executor protocol: run one job's handler under a deadline and an abort signal, and stop in two phases.

Claiming, retries and settling are the worker's business; it knows this protocol and no concrete executor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from glidemq_async.jobs.job import Job

Handler: TypeAlias = Callable[[Job[Any, Any]], Any]
"""A processor: a coroutine function or a plain function of one job."""


@runtime_checkable
class Executor(Protocol):
    """Runs handlers, in the event loop of its worker; several workers of one loop may share it."""

    @property
    def occupied(self) -> int:
        """Slots still taken by runs that were given up but cannot be interrupted (threads)."""
        ...

    async def start(self, freed: Callable[[], None]) -> None:
        """Get ready; called before the first run of its first worker. Call `freed` in the loop whenever `occupied` has
        fallen.

        What it raises keeps the worker from starting, and `stop` is not called then.
        """
        ...

    async def run(self, handler: Handler, job: Job[Any, Any], timeout: float | None) -> object:
        """Run the handler and return its value or raise what it raises.

        After `timeout` seconds the run is ended as forcefully as the executor can, and TimeoutError is raised.
        Cancelling this call means the same: end the run. Who cancels has set `job.abort` before; at a timeout
        the executor sets it.
        """
        ...

    async def stop(self, grace: float) -> None:
        """Ask what still runs to end, and after `grace` seconds end it as forcefully as possible.

        Called once for each start, after the last worker that used it has ended its runs.
        """
        ...


@runtime_checkable
class ChecksHandlers(Protocol):
    """What an executor may have besides: it is shown each handler before the worker starts."""

    def check_handler(self, handler: Handler) -> None:
        """Raise TypeError, which says what to do, for a handler that cannot run here."""
        ...


@runtime_checkable
class EndsSlowly(Protocol):
    """What an executor may have besides: how many seconds a run may take to end after it was cancelled."""

    @property
    def grace(self) -> float:
        """Seconds; the worker waits so long for cancelled runs before it hands their jobs back."""
        ...


@runtime_checkable
class RunsHere(Protocol):
    """What an executor may have besides: whether it calls functions in the worker's own process.

    Then tasks get their arguments as values, and what they depend on; all others get stored forms.
    """

    @property
    def runs_here(self) -> bool:
        """Whether functions are called in this process."""
        ...


@runtime_checkable
class MayBreak(Protocol):
    """What an executor may have besides: it can become unable to run anything, for good, while its process lives on."""

    def when_broken(self, tell: Callable[[Exception], None]) -> None:
        """Take what is to be called, in the loop, when that happens; the worker stops then, and raises that error."""
        ...


def grace_of(executor: Executor) -> float:
    """Return how many seconds a run of this executor may take to end after it was cancelled."""
    return executor.grace if isinstance(executor, EndsSlowly) else 0.0
