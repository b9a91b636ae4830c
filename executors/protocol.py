"""The executor protocol: run one job's handler with a deadline and an abort signal, and stop in two phases.

The worker claims, retries and settles. It uses this protocol and depends on no concrete executor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol, TypeAlias, runtime_checkable

from glidemq_async.jobs.job import Job

Handler: TypeAlias = Callable[[Job[Any, Any]], Any]
"""A processor: a coroutine function or a plain function of one job."""


@runtime_checkable
class Executor(Protocol):
    """Runs handlers. It is called in the event loop of its worker; several workers of one loop may share it."""

    @property
    def occupied(self) -> int:
        """Number of slots that abandoned runs still use because they cannot be interrupted (threads)."""
        ...

    async def start(self, freed: Callable[[], None]) -> None:
        """Prepare for runs. Called before the first run of the first worker.

        The executor calls `freed` in the loop whenever `occupied` has fallen. If this method raises, the worker does
        not start and `stop` is not called.
        """
        ...

    async def run(self, handler: Handler, job: Job[Any, Any], timeout: float | None) -> object:
        """Run the handler. Return its value or raise its error.

        After `timeout` seconds, end the run as forcefully as the executor can, and raise TimeoutError. Cancellation of
        this call also ends the run. The caller sets `job.abort` before it cancels; at a timeout the executor sets it
        with `set_abort`.
        """
        ...

    async def stop(self, grace: float) -> None:
        """Ask running handlers to end, and after `grace` seconds end them as forcefully as possible.

        Called once for each start, after the last worker that used it has ended its runs.
        """
        ...


# The protocols below are optional. An executor of another package implements the required methods and only the parts
# that apply to it. The worker asks with isinstance, so there is no base class whose defaults could hide a missing
# method, and a new optional part breaks no existing executor.
@runtime_checkable
class ChecksHandlers(Protocol):
    """Optional part of an executor: it checks each handler before the worker starts."""

    def check_handler(self, handler: Handler) -> None:
        """Raise TypeError with a remedy for a handler that cannot run here."""
        ...


@runtime_checkable
class EndsSlowly(Protocol):
    """Optional part of an executor: its runs may take some seconds to end after they were cancelled."""

    @property
    def grace(self) -> float:
        """Seconds that the worker waits for cancelled runs before it releases their jobs."""
        ...


@runtime_checkable
class AbandonsRuns(Protocol):
    """Optional part of an executor: a handler may still execute after its run was abandoned (threads)."""

    def when_ended(self, job: Job[Any, Any], call: Callable[[], None]) -> bool:
        """Call `call` in the loop when the handler of an abandoned run has returned.

        Return False, and never call it, if no handler executes for this job any more.
        """
        ...


@runtime_checkable
class RunsHere(Protocol):
    """Optional part of an executor: it calls functions in the worker's own process.

    Tasks then get their arguments as values, and their dependencies. Other executors get the stored form.
    """

    @property
    def runs_here(self) -> bool:
        """True if functions are called in this process."""
        ...


@runtime_checkable
class AwaitsHandlers(Protocol):
    """Optional part of an executor: without a timeout, its `run` only awaits the handler.

    The worker then awaits the handler itself, which saves a frame for each job.
    """

    @property
    def awaits_handlers(self) -> bool:
        """True if `run` awaits the handler and does nothing else."""
        ...


@runtime_checkable
class BeginsRuns(Protocol):
    """Optional part of an executor that finds the function of a job itself.

    The worker calls `begin` for a job without a timeout, which saves a frame for each job.
    """

    def begin(self, job: Job[Any, Any]) -> Any:
        """Return what `run` returns for this job without a timeout."""
        ...


@runtime_checkable
class SharesTasks(Protocol):
    """Optional part of an executor: the worker may run several jobs in one asyncio task, one after another."""

    def may_share(self, job: Job[Any, Any]) -> bool:
        """Return True if `run` awaits a coroutine of the handler for this job, and nothing else."""
        ...


@runtime_checkable
class KnowsTasks(Protocol):
    """Optional part of an executor: it runs only jobs with certain names."""

    @property
    def task_names(self) -> Collection[str]:
        """The names of the jobs that it can run."""
        ...


@runtime_checkable
class MayBreak(Protocol):
    """Optional part of an executor: it can break for good while the process of the worker stays alive."""

    def when_broken(self, report: Callable[[Exception], None]) -> None:
        """Set the callback for that case, called in the loop. The workers then stop and raise the error.

        It is set before each `start`, and replaces the callback of the start before.
        """
        ...


def calls_at_end(executor: Executor, job: Job[Any, Any], call: Callable[[], None]) -> bool:
    """Return whether a handler is still running for this job. If so, `call` is called when it has returned."""
    return isinstance(executor, AbandonsRuns) and executor.when_ended(job, call)


def when_ended(executor: Executor, job: Job[Any, Any], call: Callable[[], None]) -> None:
    """Call `call` once the handler of an abandoned run has ended. Calls it immediately if no handler is running."""
    if not calls_at_end(executor, job, call):
        call()


def grace_of(executor: Executor) -> float:
    """Return the seconds that a run of this executor may take to end after it was cancelled."""
    return executor.grace if isinstance(executor, EndsSlowly) else 0.0


def is_elastic(executor: object) -> bool:
    """Return whether an executor can run any number of jobs at the same time: its attribute `is_elastic`."""
    return bool(getattr(executor, "is_elastic", False))
