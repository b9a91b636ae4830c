"""Every exception of the library, one tree; nothing else lives here.

Each message says what was asked, what was found and what to do. Errors of connections
and of the server are mapped to these in storage/.
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
# ├── LibraryVersionError
# ├── UnsupportedDurability
# ├── UnknownTaskError (LookupError)
# ├── ExecutorError
# ├── HandlerError
# ├── PermissionDenied
# └── ControlFlow                    raised by a handler to say how its job goes on
#     ├── UnrecoverableError
#     ├── RetryLater
#     └── RateLimited

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from glidemq_async.durations import to_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from glidemq_async.bulk_outcome import BulkOutcome

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


class GlideMQError(Exception):
    """The root: catch it to catch everything this library raises on purpose."""

    bulk: BulkOutcome | None = None
    """After a failed `add_bulk`: which inputs are stored, which are not, and of which it is not known."""


class StorageUnavailable(GlideMQError, ConnectionError):
    """Raised when the server cannot be reached, or stays silent for longer than allowed.

    An operation that changes something may or may not have happened.
    """


class EmbeddedServerMissing(StorageUnavailable):
    """Raised when a memory:// or file:// URL is opened where no embedded server binary is installed."""


class QueueFull(GlideMQError):
    """Raised when the server refuses new jobs because a limit or its memory is exhausted."""


class QueueBusy(GlideMQError):
    """Raised when a queue is to be removed while jobs of it run; `running` says how many."""

    def __init__(self, queue: str, running: int) -> None:
        super().__init__(
            f"asked to remove queue {queue!r}, found {running} of its jobs running: let them end (pause the queue, or "
            "stop its workers), or pass force=True, which takes them from their workers"
        )
        self.queue = queue
        self.running = running

    def __reduce__(self) -> tuple[Callable[..., QueueBusy], tuple[object, ...]]:
        return type(self), (self.queue, self.running)


class PayloadTooLarge(GlideMQError, ValueError):
    """Raised before sending when an encoded value is larger than its limit; `size` and `limit` are bytes."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"{what} is {size} bytes when encoded, the limit is {limit}: "
            "store the content elsewhere and send a reference to it, or raise the limit"
        )
        self.what = what
        self.size = size
        self.limit = limit

    def __reduce__(self) -> tuple[Callable[..., PayloadTooLarge], tuple[object, ...]]:
        return type(self), (self.what, self.size, self.limit)


class SerializationError(GlideMQError, TypeError, ValueError):
    """Raised when a value cannot be encoded or decoded.

    `path` leads to the place inside the value, such as `$.items[3].when`.
    """

    def __init__(self, message: str, path: str = "$") -> None:
        super().__init__(message)
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., SerializationError], tuple[object, ...]]:
        return type(self), (str(self), self.path)


class CodecError(SerializationError):
    """Raised when a codec refuses a payload: it was changed, its key is not known, or it is too large inside.

    The text never holds keys or payloads.
    """


class JobNotFound(GlideMQError, LookupError):
    """Raised when a job's record does not exist: it never did, or it was removed or passed its retention."""


class SchedulerNotFound(GlideMQError, LookupError):
    """Raised when there is no job scheduler with the id that was asked for."""


class JobFailed(GlideMQError):
    """Raised to whoever awaits the result of a job that ended in `failed`.

    `error_type` is the name of the handler's exception, `message` its text, `traceback` what was kept of its
    traceback, as text ("" when nothing was).
    """

    def __init__(self, error_type: str, message: str, traceback: str = "") -> None:
        super().__init__(f"{error_type}: {message}" if message else error_type)
        self.error_type = error_type
        self.message = message
        self.traceback = traceback

    def __reduce__(self) -> tuple[Callable[..., JobFailed], tuple[object, ...]]:
        return type(self), (self.error_type, self.message, self.traceback)


class JobStateError(GlideMQError):
    """Raised when an operation does not fit the state of its job; `asked`, `found` and `to_do` tell more."""

    def __init__(self, asked: str, found: str, to_do: str) -> None:
        super().__init__(f"cannot {asked}: the job is {found}; {to_do}")
        self.asked = asked
        self.found = found
        self.to_do = to_do

    def __reduce__(self) -> tuple[Callable[..., JobStateError], tuple[object, ...]]:
        return type(self), (self.asked, self.found, self.to_do)


class ResultTimeout(GlideMQError, TimeoutError):
    """Raised when a result did not arrive in time; the job goes on and its result can be awaited again."""


class LeaseLost(GlideMQError):
    """Raised when a worker acts on a job that is no longer its own: another claim holds it now."""


class QueueClosed(GlideMQError):
    """Raised when a queue or worker is used after it was closed."""


class CycleError(GlideMQError, ValueError):
    """Raised when the jobs of a flow depend on each other in a circle."""


class IncompatibleQueueError(GlideMQError):
    """Raised at connect when the stored queue has another layout, owner or mode; nothing was written."""


class LibraryVersionError(GlideMQError):
    """Raised when the server holds a function library that this client cannot work with."""


class UnsupportedDurability(GlideMQError):
    """Raised when the server cannot give the durability asked for, as "fsync" before version 7.2."""


class UnknownTaskError(GlideMQError, LookupError):
    """Raised for a job whose name is that of no task of the worker's app; nothing is ever imported by name.

    Raised only after `GlideMQ(unknown_task_grace=...)`: by default the job waits. It is a failure like another: the
    job's attempts and backoff count.
    """


class ExecutorError(GlideMQError):
    """Raised when what runs a handler broke, as opposed to the handler itself.

    `exit_status` is set when the process of the job ended before the job did: its exit status, or the negative number
    of the signal that killed it.
    """

    def __init__(self, message: str, *, exit_status: int | None = None) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class HandlerError(GlideMQError):
    """Stands for what a handler raised in another process, when its type is not known in this one.

    `error_type` is the name of its type, `message` its text, `traceback` its traceback as text.
    """

    def __init__(self, error_type: str, message: str, traceback: str = "") -> None:
        super().__init__(f"{error_type}: {message}" if message else error_type)
        self.error_type = error_type
        self.message = message
        self.traceback = traceback

    def __reduce__(self) -> tuple[Callable[..., HandlerError], tuple[object, ...]]:
        return type(self), (self.error_type, self.message, self.traceback)


class PermissionDenied(GlideMQError):
    """Raised when a job reached for something that its permissions do not cover."""


class ControlFlow(GlideMQError):
    """Base of what a handler raises to say how its job goes on; do not raise it itself."""


class UnrecoverableError(ControlFlow):
    """Raise in a handler to fail the job for good, whatever attempts remain."""


class _Wait(ControlFlow):
    verb: Literal["retry in", "rate limited for"]
    waits_for: str = ""
    """Why the job waits, where the library raises this itself; stored as the job's `failed_reason`."""

    def __init__(self, delay: float | timedelta) -> None:
        milliseconds = to_ms("delay", delay)
        super().__init__(f"{self.verb} {milliseconds / 1000:g} s")
        self.delay_ms = milliseconds

    @property
    def delay(self) -> float:
        """The delay in seconds."""
        return self.delay_ms / 1000

    def __reduce__(self) -> tuple[Callable[..., _Wait], tuple[object, ...]]:
        return type(self), (self.delay,)


class RetryLater(_Wait):
    """Raise in a handler to run the job again after `delay` seconds.

    The run does not count as an attempt, so a job can be put off without end. With `count=True` it does: when
    `attempts` are used up, the job fails. Raise it `from` the exception that led to it, and the job shows that one as
    its failure.
    """

    verb = "retry in"

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
    """Raise in a handler when a limit outside was hit: the job comes back after `delay` seconds, no attempt counts.

    Until then no job of the same key starts; if the job has no key, no job of the queue. The worker's JobBudget limits
    that to one hour by default; then the job runs again and can raise it again.
    """

    verb = "rate limited for"
