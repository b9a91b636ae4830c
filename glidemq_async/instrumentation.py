"""Hooks for telemetry. A queue reports its adds to them, and a worker its runs.

A queue or worker without instrumentation calls nothing and pays almost nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

__all__ = [
    "Addition",
    "Instrumentation",
    "Instruments",
    "QueueDepth",
    "ReadDepth",
    "RunJob",
    "RunOutcome",
    "RunReport",
    "WorkerPart",
    "instruments_of",
    "running_step",
]

_log = logging.getLogger(__name__)

RunOutcome: TypeAlias = Literal[
    "completed", "failed", "retrying", "delayed", "suspended", "returned", "revoked", "lease_lost"
]
"""The end of a run.

- "completed": the handler returned a result.
- "failed": the run was the last one and failed.
- "retrying": the run failed and the job will be tried again.
- "delayed": the handler raised RetryLater or RateLimited, or called `job.move_to_delayed`
  or `job.move_to_waiting_children`.
- "suspended": the handler called `job.suspend`.
- "returned": the worker stopped before the run ended.
- "revoked": the run was stopped because the job was revoked.
- "lease_lost": the worker lost the lease, so the server refused the outcome.
"""


class RunJob(Protocol):
    """The part of a Job that hooks use."""

    id: str
    name: str
    attempts_made: int
    fence: int

    @property
    def queue(self) -> str:
        """The name of the job's queue."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The short texts that are sent along with the job, for example a trace id."""
        ...

    @property
    def data_size(self) -> int:
        """The size of the stored payload in bytes."""
        ...

    @property
    def waited(self) -> float | None:
        """Seconds between the time when the job could have started and the time when it did; None if unknown."""
        ...


class Addition:
    """One job that is being added: its `queue`, its `name` and its `headers`.

    A hook may change `headers` before the job is sent. `id`, `outcome` ("added", "duplicate" or "completed") and `size`
    (in bytes) are set after the add has succeeded.
    """

    __slots__ = ("headers", "id", "name", "outcome", "queue", "size")

    def __init__(self, queue: str, name: str, headers: Mapping[str, str]) -> None:
        self.queue = queue
        self.name = name
        self.headers = dict(headers)
        self.id = self.outcome = ""
        self.size = 0


class RunReport:
    """The end of a run: its `outcome`, the handler's exception as `error` (or None), and its duration in `seconds`."""

    __slots__ = ("error", "outcome", "seconds")

    def __init__(self) -> None:
        # The worker sets the outcome when it knows it. A run that ends without one was given up because its lease is
        # gone.
        self.outcome: RunOutcome = "lease_lost"
        self.error: BaseException | None = None
        self.seconds = 0.0


class QueueDepth(NamedTuple):
    """The jobs and the workers of a queue at one instant."""

    counts: Mapping[str, int]
    """The number of jobs in each state."""
    oldest_waiting_seconds: float | None
    """The age in seconds of the oldest one among the next jobs of each structure, None if no job waits."""
    workers: int
    """The number of live workers."""


ReadDepth: TypeAlias = "Callable[[], Awaitable[QueueDepth]]"
"""A function that reads the depth of a queue."""


class WorkerPart(NamedTuple):
    """A worker that starts or stops: its name, its queue, and a function that reads the depth of the queue."""

    name: str
    queue: str
    depth: ReadDepth
    running: Callable[[], int]
    """The number of jobs that the worker runs."""


class Instrumentation:
    """Base class of the objects in `instrumentation=` of queues and workers. Override the hooks you need.

    Before an add or a run, hooks are called in the order of the list; after it, in reverse order. They run in the task
    that adds or runs the job, so they can set context variables for it. An exception from a hook is logged and has no
    other effect. Hooks observe; to change what happens, use middleware.
    """

    def before_add(self, additions: Sequence[Addition]) -> object:
        """Called before jobs are sent by one call of `add` or `add_bulk`. The return value is passed to `after_add`."""

    def after_add(self, token: Any, additions: Sequence[Addition], error: BaseException | None) -> None:
        """Called after the jobs were added, or after `error` was raised."""

    def before_run(self, job: RunJob) -> object:
        """Called when a run of a job begins. The return value is passed to `after_run`."""

    def after_run(self, token: Any, job: RunJob, report: RunReport) -> None:
        """Called when the run has ended. Its outcome is not stored yet."""

    def before_step(self, job: RunJob, name: str) -> object:
        """Called when a run executes a step. The return value is passed to `after_step`.

        A recorded step is not executed again, so it is not reported again. Steps in a subprocess are not reported.
        """

    def after_step(self, token: Any, job: RunJob, name: str, error: BaseException | None) -> None:
        """Called when the function of the step has returned, or has raised `error`. Its result is not stored yet."""

    def settled(self, job: RunJob, outcome: RunOutcome) -> None:
        """Called when the store has accepted the outcome of a run, or has refused it (`"lease_lost"`)."""

    async def worker_started(self, worker: WorkerPart) -> None:
        """Called when a worker has started. An exception here, for example for a port in use, aborts the start."""

    async def worker_stopped(self, worker: WorkerPart) -> None:
        """Called when a worker has stopped."""


class Instruments:
    """All instrumentation of one queue or worker. It is false if there is none."""

    def __init__(self, instruments: Sequence[Instrumentation]) -> None:
        self._all = tuple(instruments)

    def __bool__(self) -> bool:
        return bool(self._all)

    @contextmanager
    def adding(self, additions: Sequence[Addition]) -> Generator[None]:
        """Call the hooks before and after an add."""
        tokens = [(one, _safely(one.before_add, additions)) for one in self._all]
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            for one, token in reversed(tokens):
                _safely(one.after_add, token, additions, error)

    @contextmanager
    def running(self, job: RunJob) -> Generator[RunReport]:
        """Call the hooks before and after a run."""
        # Each hook is called by itself and its error is logged: a broken exporter must neither fail a job nor silence
        # the other hooks.
        tokens = [(one, _safely(one.before_run, job)) for one in self._all]
        report = RunReport()
        present = _present.set((self, job))
        try:
            yield report
        finally:
            _present.reset(present)
            for one, token in reversed(tokens):
                _safely(one.after_run, token, job, report)

    @contextmanager
    def executing_step(self, job: RunJob, name: str) -> Generator[None]:
        """Call the hooks before and after the function of a step."""
        tokens = [(one, _safely(one.before_step, job, name)) for one in self._all]
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            for one, token in reversed(tokens):
                _safely(one.after_step, token, job, name, error)

    def settled(self, job: RunJob, outcome: RunOutcome) -> None:
        """Report whether the store has accepted an outcome."""
        for one in self._all:
            _safely(one.settled, job, outcome)

    async def start(self, worker: WorkerPart) -> None:
        """Report the start of a worker. If a hook raises, report a stop to the hooks already called, then raise."""
        heard: list[Instrumentation] = []
        try:
            for one in self._all:
                await one.worker_started(worker)
                heard.append(one)
        except BaseException:
            await _stop(heard, worker)
            raise

    async def stop(self, worker: WorkerPart) -> None:
        """Report that a worker has stopped."""
        await _stop(self._all, worker)


async def _stop(instruments: Sequence[Instrumentation], worker: WorkerPart) -> None:
    for one in reversed(instruments):
        try:
            await one.worker_stopped(worker)
        except Exception:  # noqa: BLE001 - telemetry must not keep a worker from ending
            _log.exception("%s.worker_stopped raised", type(one).__name__)


def _safely(hook: Callable[..., object], *arguments: object) -> object:
    try:
        return hook(*arguments)
    except Exception:  # noqa: BLE001 - telemetry must not fail a job
        _log.exception("hook %s raised an exception; telemetry is incomplete", getattr(hook, "__qualname__", hook))
        return None


_NONE: Final = Instruments(())

_present: Final[ContextVar[tuple[Instruments, RunJob] | None]] = ContextVar("glidemq_instruments", default=None)
"""The instruments of the run in this context, and its job."""


def running_step(name: str) -> AbstractContextManager[None]:
    """Report a step of the run in this context to its instruments, if there are any."""
    present = _present.get()
    if present is None:
        return nullcontext()
    instruments, job = present
    return instruments.executing_step(job, name)


def instruments_of(found: Sequence[Instrumentation]) -> Instruments:
    """Check the `instrumentation` of a user and wrap it. Raises TypeError."""
    if isinstance(found, Instrumentation) or not isinstance(found, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"instrumentation must be a sequence of Instrumentation, got {found!r}")
    for one in found:
        if not isinstance(one, Instrumentation):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"each instrumentation must be an Instrumentation, got {one!r}")
    return Instruments(found) if found else _NONE
