"""The exceptions of the library. All of them derive from `GlideMQError`.

Each message gives the state, the cause and the remedy. The modules of storage/ translate the errors of connections and
of the server to these classes.
"""

# GlideMQError
# ├── StorageUnavailable (ConnectionError)
# │   └── EmbeddedServerMissing
# ├── QueueFull
# ├── QueueBusy
# ├── MailboxFull
# ├── DuplicateSignal
# ├── PayloadTooLarge (ValueError)
# ├── SerializationError (TypeError, ValueError)
# │   └── CodecError
# ├── JobNotFound (LookupError)
# ├── SchedulerNotFound (LookupError)
# ├── JobFailed
# ├── BatchFailed (ExceptionGroup)
# ├── JobStateError
# ├── ResultTimeout (TimeoutError)
# ├── NoReply
# ├── LeaseLost
# ├── JournalFull
# ├── StepFailed
# ├── QueueClosed
# ├── WorkflowDiverged
# ├── WorkflowExists
# ├── CycleError (ValueError)
# ├── IncompatibleQueueError
# │   └── OldWorkersRunning
# ├── LibraryVersionError
# ├── UnsupportedDurability
# ├── UnknownTaskError (LookupError)
# ├── ExecutorError
# ├── HandlerError
# ├── PermissionDenied
# └── ControlFlow                    raised by a handler to control the next step of its job
#     ├── UnrecoverableError
#     ├── RetryLater
#     ├── RateLimited
#     ├── Postponed
#     ├── Suspended
#     └── WaitingForChildren

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from glidemq_async.durations import to_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

__all__ = [
    "BatchFailed",
    "CodecError",
    "ControlFlow",
    "CycleError",
    "DuplicateSignal",
    "EmbeddedServerMissing",
    "ExecutorError",
    "FilterError",
    "GlideMQError",
    "HandlerError",
    "IncompatibleQueueError",
    "JobFailed",
    "JobNotFound",
    "JobStateError",
    "JournalFull",
    "LeaseLost",
    "LibraryVersionError",
    "MailboxFull",
    "NoReply",
    "OldWorkersRunning",
    "PayloadTooLarge",
    "PermissionDenied",
    "Postponed",
    "QueueBusy",
    "QueueClosed",
    "QueueFull",
    "RateLimited",
    "ResultTimeout",
    "RetryLater",
    "SchedulerNotFound",
    "SerializationError",
    "StepFailed",
    "StorageUnavailable",
    "Suspended",
    "UnknownTaskError",
    "UnrecoverableError",
    "UnsupportedDurability",
    "WaitingForChildren",
    "WorkflowDiverged",
    "WorkflowExists",
]


@dataclass(frozen=True, slots=True)
class BulkOutcome:
    """The outcome of each input of an `add_bulk` that raised: `error.bulk`. Each input is in exactly one field.

    - `stored`: the position of the input and the id of its job, or of the existing job that it duplicates.
    - `refused`: the positions of inputs that are not stored.
    - `unknown`: the positions of inputs that were sent but not confirmed. Adding such an input again creates a second
    job unless it has a `job_id`.
    """

    stored: Mapping[int, str]
    refused: tuple[int, ...]
    unknown: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"add_bulk: {len(self.stored)} inputs stored, {len(self.refused)} not stored, {len(self.unknown)} unknown"
        )


class GlideMQError(Exception):
    """Base class of every exception that this library raises on purpose."""

    bulk: BulkOutcome | None = None
    """After a failed `add_bulk`: the inputs that are stored, that are not stored, and whose outcome is unknown."""


class StorageUnavailable(GlideMQError, ConnectionError):
    """Raised when the server cannot be reached, or does not reply within the timeout.

    An operation that changes something may or may not have happened.
    """


class EmbeddedServerMissing(StorageUnavailable):
    """Raised when a memory:// or file:// URL is opened and no embedded server binary is installed."""


class QueueFull(GlideMQError):
    """Raised when the server refuses new jobs because a limit is reached or its memory is full."""


class QueueBusy(GlideMQError):
    """Raised when a queue cannot be removed because some of its jobs are running; `running` is their number."""

    def __init__(self, queue: str, running: int) -> None:
        super().__init__(
            f"queue {queue!r} cannot be removed while {running} of its jobs are running; pause the queue or stop its "
            "workers and wait for the jobs to end, or pass force=True to take the jobs from their workers"
        )
        self.queue = queue
        self.running = running

    def __reduce__(self) -> tuple[Callable[..., QueueBusy], tuple[object, ...]]:
        return type(self), (self.queue, self.running)


class MailboxFull(GlideMQError):
    """Raised when a job already has as many signals, or bytes of signals, as its mailbox holds."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"the mailbox of job {job_id} is full: it holds 256 signals and 256 KiB; wait until the job has received "
            "some of them, or send with a ttl"
        )
        self.job_id = job_id

    def __reduce__(self) -> tuple[Callable[..., MailboxFull], tuple[object, ...]]:
        return type(self), (self.job_id,)


class DuplicateSignal(GlideMQError):
    """Raised when a job has already accepted a signal with the same `once`."""

    def __init__(self, job_id: str, once: str) -> None:
        super().__init__(
            f"job {job_id} has already accepted a signal with once={once!r}; the signal was not sent again"
        )
        self.job_id = job_id
        self.once = once

    def __reduce__(self) -> tuple[Callable[..., DuplicateSignal], tuple[object, ...]]:
        return type(self), (self.job_id, self.once)


class PayloadTooLarge(GlideMQError, ValueError):
    """Raised before anything is sent when an encoded value exceeds its limit; `size` and `limit` are in bytes."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"{what} is {size} bytes when encoded, but the limit is {limit}; "
            "store the content elsewhere and send a reference to it, or raise the limit"
        )
        self.what = what
        self.size = size
        self.limit = limit

    def __reduce__(self) -> tuple[Callable[..., PayloadTooLarge], tuple[object, ...]]:
        return type(self), (self.what, self.size, self.limit)


class SerializationError(GlideMQError, TypeError, ValueError):
    """Raised when a value cannot be encoded or decoded. `path` locates its faulty part, such as `$.items[3].when`."""

    def __init__(self, message: str, path: str = "$") -> None:
        super().__init__(message)
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., SerializationError], tuple[object, ...]]:
        return type(self), (str(self), self.path)


class CodecError(SerializationError):
    """Raised when a codec refuses a payload: it was modified, its key is unknown, or it exceeds the size limit.

    The message never contains keys or payloads.
    """


class JobNotFound(GlideMQError, LookupError):
    """Raised when a job has no record: it was never added, it was removed, or its retention has expired."""


class StreamForgotten(GlideMQError, LookupError):
    """Raised when the chunks of a job cannot be read any more: their ttl is over, or the job does not exist."""


class SchedulerNotFound(GlideMQError, LookupError):
    """Raised when no job scheduler has the requested id."""


class JobFailed(GlideMQError):
    """Raised when the result of a job is awaited and the job ended in `failed`.

    `error_type` is the class name of the handler's exception, `message` is its text, and `traceback` is the stored part
    of its traceback as text ("" if none was stored).
    """

    def __init__(self, error_type: str, message: str, traceback: str = "") -> None:
        super().__init__(f"{error_type}: {message}" if message else error_type)
        self.error_type = error_type
        self.message = message
        self.traceback = traceback

    def __reduce__(self) -> tuple[Callable[..., JobFailed], tuple[object, ...]]:
        return type(self), (self.error_type, self.message, self.traceback)


class JobStateError(GlideMQError):
    """Raised when an operation does not fit the state of its job.

    `asked` is the operation, `found` the state of the job, and `to_do` the remedy.
    """

    def __init__(self, asked: str, found: str, to_do: str) -> None:
        super().__init__(f"cannot {asked}: the job is {found}; {to_do}")
        self.asked = asked
        self.found = found
        self.to_do = to_do

    def __reduce__(self) -> tuple[Callable[..., JobStateError], tuple[object, ...]]:
        return type(self), (self.asked, self.found, self.to_do)


class BatchFailed(GlideMQError, ExceptionGroup[GlideMQError]):
    """Raised by `batch.results()` after all jobs have ended, if some of them have no result.

    `exceptions` has one error for each of these jobs, in the order of the batch: JobFailed, JobNotFound for a missing
    job, or SerializationError. A note of each error names the job.
    """

    @override
    def derive(self, excs: Sequence[GlideMQError]) -> BatchFailed:  # type: ignore[override]
        """Return a group of a part of the errors, for `except*` and `split`."""
        return BatchFailed(self.message, excs)


class ResultTimeout(GlideMQError, TimeoutError):
    """Raised when a result or a reply did not arrive in time. The job continues; one of `add_and_wait` is revoked."""


class NoReply(GlideMQError):
    """Raised by `send_and_wait` if the job has ended, or was removed, and has not replied to the signal."""


class LeaseLost(GlideMQError):
    """Raised when a worker acts on a job whose lease it has lost. Another claim may already be running the job."""


class JournalFull(GlideMQError):
    """Raised when a run records more steps, or larger ones, than the StepLimits of its worker allow."""

    def __init__(self, job_id: str, step: str, found: str, option: str) -> None:
        super().__init__(
            f"step {step!r} cannot be recorded in the journal of job {job_id}: {found}; split the work into several "
            f"jobs, store large results elsewhere, or raise {option} in StepLimits of the worker"
        )
        self.job_id = job_id
        self.step = step
        self.found = found
        self.option = option

    def __reduce__(self) -> tuple[Callable[..., JournalFull], tuple[object, ...]]:
        return type(self), (self.job_id, self.step, self.found, self.option)


class StepFailed(GlideMQError):
    """Raised for a step whose last attempt has failed. The failure is recorded, so later runs raise it too.

    `step` is the name of the step, `error_type` the class name of its exception, `message` its text, and `traceback`
    the stored part of its traceback as text. Only steps with attempts record failures. A job whose handler does not
    catch this error fails without another attempt. After `job.retry()` the step is executed again.
    """

    def __init__(self, step: str, error_type: str, message: str, traceback: str = "") -> None:
        super().__init__(f"step {step!r} has failed: {error_type}: {message}" if message else f"{step!r}: {error_type}")
        self.step = step
        self.error_type = error_type
        self.message = message
        self.traceback = traceback

    def __reduce__(self) -> tuple[Callable[..., StepFailed], tuple[object, ...]]:
        return type(self), (self.step, self.error_type, self.message, self.traceback)


class WorkflowDiverged(GlideMQError):
    """Raised when the code of a workflow has changed and its job runs again, and steps do not fit the recorded ones.

    `left` has the recorded calls that the run did not ask for, and `asked` the calls that it asked for instead, both
    as text. The job fails with the cause "diverged", and keeps its journal.
    """

    def __init__(self, workflow: str, left: Sequence[str], asked: Sequence[str]) -> None:
        super().__init__(
            f"workflow {workflow!r} has changed since this job ran: recorded {', '.join(left)}; asked instead for "
            f"{', '.join(asked) or 'nothing'}. Start a worker with the earlier code and retry the job, or accept the "
            "new code with run.accept() or `glidemq workflows accept`"
        )
        self.workflow = workflow
        self.left = tuple(left)
        self.asked = tuple(asked)

    def __reduce__(self) -> tuple[Callable[..., WorkflowDiverged], tuple[object, ...]]:
        return type(self), (self.workflow, self.left, self.asked)


class WorkflowExists(GlideMQError):
    """Raised by `workflow.start(id=..., on_conflict="refuse")` and `run.fork(id=...)` if a job has this id.

    `state` is the state of that job.
    """

    def __init__(self, workflow: str, run_id: str, state: str) -> None:
        super().__init__(
            f"workflow {workflow!r} cannot start with the id {run_id!r}: a job with this id is {state}; "
            'choose another id, or use that run, which start() returns with on_conflict="return"'
        )
        self.workflow = workflow
        self.run_id = run_id
        self.state = state

    def __reduce__(self) -> tuple[Callable[..., WorkflowExists], tuple[object, ...]]:
        return type(self), (self.workflow, self.run_id, self.state)


class QueueClosed(GlideMQError):
    """Raised when a queue, worker or app is used after it was closed."""


class CycleError(GlideMQError, ValueError):
    """Raised when the jobs of a flow depend on each other in a cycle.

    `cycle` has the names of these jobs. Each one depends on the next, and the last one is the first one again.
    """

    def __init__(self, cycle: Sequence[str]) -> None:
        super().__init__(
            f"the jobs of the flow depend on each other in a cycle: {' -> '.join(cycle)}; "
            "remove one of these dependencies"
        )
        self.cycle = tuple(cycle)

    def __reduce__(self) -> tuple[Callable[..., CycleError], tuple[object, ...]]:
        return type(self), (self.cycle,)


class FilterError(GlideMQError, ValueError):
    """Raised for a filter of jobs that cannot be understood. `position` is the place of the mistake, from 1."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(f"the filter is wrong at character {position}: {problem}")
        self.problem = problem
        self.position = position

    def __reduce__(self) -> tuple[Callable[..., FilterError], tuple[object, ...]]:
        return type(self), (self.problem, self.position)


class IncompatibleQueueError(GlideMQError):
    """Raised on connect when the stored queue has another layout, owner or mode. Nothing is written in this case."""


class OldWorkersRunning(IncompatibleQueueError):
    """Raised on connect when a queue has to be migrated and workers of an older version are running.

    `workers` are their names; at most ten of them. Nothing is written in this case.
    """

    def __init__(self, queue: str, workers: tuple[str, ...], seconds_ago: float) -> None:
        super().__init__(
            f"queue {queue!r} has the stored data of an older version (layout 1), and workers of that version are "
            f"running: {', '.join(workers)} (last sign of life {seconds_ago:.0f} s ago). Stop them and connect again; "
            "the data are then migrated. Workers that were killed count as running for a minute."
        )
        self.queue = queue
        self.workers = workers
        self.seconds_ago = seconds_ago

    def __reduce__(self) -> tuple[Callable[..., OldWorkersRunning], tuple[object, ...]]:
        return type(self), (self.queue, self.workers, self.seconds_ago)


class LibraryVersionError(GlideMQError):
    """Raised when the function library on the server is not compatible with this client."""


class UnsupportedDurability(GlideMQError):
    """Raised when the server does not support the requested durability, for example "fsync" before version 7.2."""


class UnknownTaskError(GlideMQError, LookupError):
    """Raised for a job whose name matches no task of the worker's app. Tasks are never imported by name.

    Only raised if `GlideMQ(unknown_task_grace=...)` is set. By default the job waits. The error is handled like any
    other failure: the job's attempts and backoff apply.
    """


class ExecutorError(GlideMQError):
    """Raised when the environment that runs a handler failed, as opposed to the handler itself.

    `exit_status` is set when the process of the job ended before the job did. It is the exit status, or the negative
    number of the signal that killed the process.
    """

    def __init__(self, message: str, *, exit_status: int | None = None) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class HandlerError(GlideMQError):
    """Replaces an exception from a handler in another process whose class cannot be imported in this process.

    `error_type` is the name of its class, `message` its text, and `traceback` its traceback as text.
    """

    def __init__(self, error_type: str, message: str, traceback: str = "") -> None:
        super().__init__(f"{error_type}: {message}" if message else error_type)
        self.error_type = error_type
        self.message = message
        self.traceback = traceback

    def __reduce__(self) -> tuple[Callable[..., HandlerError], tuple[object, ...]]:
        return type(self), (self.error_type, self.message, self.traceback)


class PermissionDenied(GlideMQError):
    """Raised when a job accesses something that its permissions do not include."""


class ControlFlow(GlideMQError):
    """Base class of the exceptions with which a handler controls its job. Raise one of the subclasses."""


class UnrecoverableError(ControlFlow):
    """Raise in a handler to fail the job permanently, even if attempts remain."""


class _Wait(ControlFlow):
    _announcement: Literal["retry in", "rate limited for"]
    waits_for: str = ""
    """The reason for the wait if the library itself raises this; stored as the job's `failed_reason`."""

    def __init__(self, delay: float | timedelta) -> None:
        milliseconds = to_ms("delay", delay)
        super().__init__(f"{self._announcement} {milliseconds / 1000:g} s")
        self.delay_ms = milliseconds

    @property
    def delay(self) -> float:
        """The delay in seconds."""
        return self.delay_ms / 1000

    def __reduce__(self) -> tuple[Callable[..., _Wait], tuple[object, ...]]:
        return type(self), (self.delay,)


class RetryLater(_Wait):
    """Raise in a handler to run the job again after `delay` seconds.

    By default the run does not count as an attempt, so a job can be postponed indefinitely. With `count=True` it
    counts, and the job fails when its `attempts` are used up. Raise this `from` another exception to record that
    exception as the failure of the job.
    """

    _announcement = "retry in"

    def __init__(self, delay: float | timedelta, *, count: bool = False) -> None:
        super().__init__(delay)
        if not isinstance(count, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"count must be True or False, got {count!r}")
        self.count = count

    @override
    def __reduce__(self) -> tuple[Callable[..., RetryLater], tuple[object, ...]]:
        return _retry_later, (self.delay, self.count)


def _retry_later(delay: float, count: bool) -> RetryLater:
    return RetryLater(delay, count=count)


class RateLimited(_Wait):
    """Raise in a handler when an external limit was hit, to run the job again after `delay` seconds.

    The run does not count as an attempt. Until the job runs again, no job with the same ordering key starts. If the job
    has no key, no job of the queue starts. The worker's JobBudget limits the delay to one hour by default; after that
    the job runs again and can raise this again.
    """

    _announcement = "rate limited for"


class Postponed(ControlFlow):
    """Raised by `job.move_to_delayed` to end the run. A handler must not catch it.

    `milliseconds` is the delay, or the instant since 1970 if `is_instant`. `step` is "" if the step stays the same.
    """

    def __init__(self, milliseconds: int, *, is_instant: bool = False, step: str = "") -> None:
        super().__init__(f"delayed {'until' if is_instant else 'for'} {milliseconds} ms")
        self.milliseconds = milliseconds
        self.is_instant = is_instant
        self.step = step

    def __reduce__(self) -> tuple[Callable[..., Postponed], tuple[object, ...]]:
        return _postponed, (self.milliseconds, self.is_instant, self.step)


def _postponed(milliseconds: int, is_instant: bool, step: str) -> Postponed:
    return Postponed(milliseconds, is_instant=is_instant, step=step)


class Suspended(ControlFlow):
    """Raised by `job.suspend` to end the run. A handler must not catch it.

    `signals` are the names that the job waits for, None for any signal; `single`: it takes one of them. `timeout_ms` is
    None without a timeout. With `gives_back` the signals of this run return to the mailbox. With `known_ends` the end
    of a child resumes the job too; it is the number of its children that have ended as far as the run knows.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        timeout_ms: int | None = None,
        signals: tuple[str, ...] | None = None,
        single: bool = False,
        step: str = "",
        gives_back: bool = False,
        known_ends: int | None = None,
    ) -> None:
        super().__init__(f"suspended: {reason}" if reason else "suspended")
        self.reason = reason
        self.timeout_ms = timeout_ms
        self.signals = signals
        self.single = single
        self.step = step
        self.gives_back = gives_back
        self.known_ends = known_ends

    def __reduce__(self) -> tuple[Callable[..., Suspended], tuple[object, ...]]:
        names = ("reason", "timeout_ms", "signals", "single", "step", "gives_back", "known_ends")
        return partial(Suspended, **{name: getattr(self, name) for name in names}), ()


class WaitingForChildren(ControlFlow):
    """Raised by `job.move_to_waiting_children` to end the run. A handler must not catch it."""

    def __init__(self) -> None:
        super().__init__("the job waits for its children")

    def __reduce__(self) -> tuple[Callable[..., WaitingForChildren], tuple[object, ...]]:
        return type(self), ()
