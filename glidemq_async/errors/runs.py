"""Exceptions of the run of a job: its lease, task, executor and permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidemq_async.errors.base import GlideMQError

if TYPE_CHECKING:
    from collections.abc import Callable


class LeaseLost(GlideMQError):
    """Raised when a worker acts on a job whose lease it has lost. Another claim may already be running the job."""


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
