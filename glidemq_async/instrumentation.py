"""Hooks for telemetry: what a queue tells of its adds and a worker of its runs, to whoever was given to it.

Nothing is called, and next to nothing costs anything, where no instrumentation was given.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

__all__ = [
    "Addition",
    "Instrumentation",
    "Instruments",
    "RunJob",
    "RunOutcome",
    "RunReport",
    "WorkerPart",
    "instruments_of",
]

_log = logging.getLogger(__name__)

RunOutcome: TypeAlias = Literal["completed", "failed", "retrying", "delayed", "returned", "revoked", "lease_lost"]
"""How a run ended: with a result; with the last failure; with one that is tried again; with RetryLater or RateLimited;
unfinished, at shutdown; stopped because the job was revoked; with its lease lost, so that its outcome is refused."""


class RunJob(Protocol):
    """What hooks see of a job: a Job."""

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
        """The short texts that travel with the job."""
        ...

    @property
    def data_size(self) -> int:
        """The size of the stored payload in bytes."""
        ...

    @property
    def waited(self) -> float | None:
        """Seconds for which the job could have started already, None where that is not known."""
        ...


class Addition:
    """One job that is being added.

    `headers` may be changed before it is sent, and travel with it. `id`, `outcome` ("added", "duplicate" or
    "completed") and `size`, in bytes, are there once the add has succeeded.
    """

    __slots__ = ("headers", "id", "name", "outcome", "queue", "size")

    def __init__(self, queue: str, name: str, headers: Mapping[str, str]) -> None:
        self.queue = queue
        self.name = name
        self.headers = dict(headers)
        self.id = self.outcome = ""
        self.size = 0


class RunReport:
    """How a run ended: its outcome, what the handler raised, and how many seconds it took."""

    __slots__ = ("error", "outcome", "seconds")

    def __init__(self) -> None:
        self.outcome: RunOutcome = "lease_lost"
        self.error: BaseException | None = None
        self.seconds = 0.0


class WorkerPart(NamedTuple):
    """A worker that starts or stops: its name, its queue, and how to count the queue's jobs by state."""

    name: str
    queue: str
    counts: Callable[[], Awaitable[Mapping[str, int]]]
    running: Callable[[], int]
    """How many jobs it has in hand."""


class Instrumentation:
    """Base of what can be given to queues and workers as `instrumentation`; override what you need.

    Hooks are called in the order of the list before an add or a run, and in the reverse order after it, in the task
    that adds or runs, so that context variables hold for it. What a hook raises is logged and disturbs nobody. They
    are not for changing what happens: that is middleware's business.
    """

    def before_add(self, additions: Sequence[Addition]) -> object:
        """Jobs are about to be sent, in one call of `add` or `add_bulk`. What is returned goes to `after_add`."""

    def after_add(self, token: Any, additions: Sequence[Addition], error: BaseException | None) -> None:
        """They were added, or `error` was raised."""

    def before_run(self, job: RunJob) -> object:
        """A run of a job begins. What is returned goes to `after_run`."""

    def after_run(self, token: Any, job: RunJob, report: RunReport) -> None:
        """The run has ended; its outcome is not stored yet."""

    def settled(self, job: RunJob, outcome: RunOutcome) -> None:
        """The store has accepted the outcome of a run, or refused it: "lease_lost"."""

    async def worker_started(self, worker: WorkerPart) -> None:
        """A worker works. What is raised here, as by a port that is taken, ends its start."""

    async def worker_stopped(self, worker: WorkerPart) -> None:
        """A worker has stopped."""


class Instruments:
    """Every instrumentation of one queue or worker. False when there is none."""

    def __init__(self, instruments: Sequence[Instrumentation]) -> None:
        self._all = tuple(instruments)

    def __bool__(self) -> bool:
        return bool(self._all)

    @contextmanager
    def adding(self, additions: Sequence[Addition]) -> Generator[None]:
        """Tell of an add around it."""
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
        """Tell of a run around it."""
        tokens = [(one, _safely(one.before_run, job)) for one in self._all]
        report = RunReport()
        try:
            yield report
        finally:
            for one, token in reversed(tokens):
                _safely(one.after_run, token, job, report)

    def settled(self, job: RunJob, outcome: RunOutcome) -> None:
        """Tell what became of an outcome."""
        for one in self._all:
            _safely(one.settled, job, outcome)

    async def start(self, worker: WorkerPart) -> None:
        """Tell that a worker starts; raises what a hook raises, after telling those that heard that it stopped."""
        heard: list[Instrumentation] = []
        try:
            for one in self._all:
                await one.worker_started(worker)
                heard.append(one)
        except BaseException:
            await _stop(heard, worker)
            raise

    async def stop(self, worker: WorkerPart) -> None:
        """Tell that a worker has stopped."""
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
        _log.exception("%s raised: telemetry is incomplete", getattr(hook, "__qualname__", hook))
        return None


_NONE: Final = Instruments(())


def instruments_of(found: Sequence[Instrumentation]) -> Instruments:
    """Return what a user gave as `instrumentation`. Raises TypeError."""
    if isinstance(found, Instrumentation) or not isinstance(found, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"instrumentation must be a sequence of Instrumentation, got {found!r}")
    for one in found:
        if not isinstance(one, Instrumentation):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"each instrumentation must be an Instrumentation, got {one!r}")
    return Instruments(found) if found else _NONE
