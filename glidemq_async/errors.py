"""The exceptions of the library. All of them derive from `GlideMQError`.

Each message gives the state, the cause and the remedy. The modules of storage/ translate the errors of connections and
of the server to these classes.
"""

# GlideMQError
# ├── StorageUnavailable (ConnectionError)
# │   └── EmbeddedServerMissing
# ├── QueueFull
# ├── QueueBusy
# ├── PayloadTooLarge (ValueError)
# ├── SerializationError (TypeError, ValueError)
# │   └── CodecError
# ├── JobNotFound (LookupError)
# ├── SchedulerNotFound (LookupError)
# ├── JobFailed
# ├── JobStateError
# ├── ResultTimeout (TimeoutError)
# ├── LeaseLost
# ├── QueueClosed
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
#     └── RateLimited

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from glidemq_async.durations import to_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

__all__ = [
    "CodecError",
    "ControlFlow",
    "CycleError",
    "EmbeddedServerMissing",
    "ExecutorError",
    "GlideMQError",
    "HandlerError",
    "IncompatibleQueueError",
    "JobFailed",
    "JobNotFound",
    "JobStateError",
    "LeaseLost",
    "LibraryVersionError",
    "OldWorkersRunning",
    "PayloadTooLarge",
    "PermissionDenied",
    "QueueBusy",
    "QueueClosed",
    "QueueFull",
    "RateLimited",
    "ResultTimeout",
    "RetryLater",
    "SchedulerNotFound",
    "SerializationError",
    "StorageUnavailable",
    "UnknownTaskError",
    "UnrecoverableError",
    "UnsupportedDurability",
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
    """Raised when a value cannot be encoded or decoded.

    `path` locates the faulty part of the value, for example `$.items[3].when`.
    """

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


class ResultTimeout(GlideMQError, TimeoutError):
    """Raised when a result did not arrive in time. The job continues, and its result can be awaited again."""


class LeaseLost(GlideMQError):
    """Raised when a worker acts on a job whose lease it has lost. Another claim may already be running the job."""


class QueueClosed(GlideMQError):
    """Raised when a queue, worker or app is used after it was closed."""


class CycleError(GlideMQError, ValueError):
    """Raised when the jobs of a flow depend on each other in a cycle."""


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
