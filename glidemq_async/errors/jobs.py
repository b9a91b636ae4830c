"""Exceptions of jobs, their results, streams and signals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from glidemq_async.errors.base import GlideMQError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class JobNotFound(GlideMQError, LookupError):
    """Raised when a job has no record: it was never added, it was removed, or its retention has expired."""


class StreamForgotten(GlideMQError, LookupError):
    """Raised when the chunks of a job cannot be read any more: their ttl is over, or the job does not exist."""


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


class NoReply(GlideMQError):
    """Raised by `send_and_wait` if the job has ended, or was removed, and has not replied to the signal."""
