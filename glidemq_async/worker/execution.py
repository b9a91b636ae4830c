"""The argument of `after_execution`: a final outcome that the function may change before it is stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import run_options
from glidemq_async.options.validation import optional_positive_seconds
from glidemq_async.stored.failure import MESSAGE_LIMIT, TRACEBACK_LIMIT, Failure


class Execution:
    """The end of the last run of a job, before it is stored. Set an attribute to change the stored value:

    - `result`: the return value of a completed job, None for a failed one.
    - `message`, `traceback`: the texts of a failed job's error, "" for a completed one. A new message also replaces
      the old one inside the traceback.
    - `result_ttl`: how long the record and the result are kept, in seconds. None means the queue's retention.

    `job`, `state` ("completed" or "failed") and `error` (the exception, None for a completed job) are for reading.
    Changes to them affect neither listeners nor the type of the stored error.
    """

    __slots__ = {
        "error": "The exception of a failed job, None for a completed one.",
        "job": "The job.",
        "message": 'The text of the error, "" for a completed job.',
        "result": "The return value of a completed job, None for a failed one.",
        "result_ttl": "How long the record and the result are kept, in seconds. None means the queue's retention.",
        "state": '"completed" or "failed".',
        "traceback": 'The traceback of the error as text, "" for a completed job.',
    }

    job: Job[Any, Any]
    state: Literal["completed", "failed"]
    result: Any
    error: BaseException | None
    message: str
    traceback: str
    result_ttl: float | timedelta | None

    def __init__(self, job: Job[Any, Any], result: object, error: BaseException | None, failure: Failure) -> None:
        self.job = job
        self.state = "completed" if error is None else "failed"
        self.result = result
        self.error = error
        self.message = failure.message
        self.traceback = failure.traceback
        self.result_ttl = run_options(job).result_ttl

    def __repr__(self) -> str:
        return f"<Execution of job {self.job.id}, {self.state}>"


def changed_ttl(execution: Execution) -> float | None:
    """Return the validated time to live. Raises TypeError or ValueError."""
    return optional_positive_seconds("result_ttl", execution.result_ttl)


def changed_failure(execution: Execution, failure: Failure) -> Failure:
    """Return the failure with the texts of this execution. Raises TypeError unless they are str."""
    for name in ("message", "traceback"):
        if not isinstance(getattr(execution, name), str):
            raise TypeError(f"{name} must be a str, not {getattr(execution, name)!r}")
    trace = execution.traceback
    if trace == failure.traceback and failure.message:
        trace = trace.replace(failure.message, execution.message)
    texts = [execution.message[:MESSAGE_LIMIT], trace[:TRACEBACK_LIMIT]]
    message, trace = (text.encode("utf-8", "replace").decode() for text in texts)
    return Failure(failure.error_type, message, trace, failure.place)


AfterExecution: TypeAlias = Callable[[Execution], "Awaitable[None] | None"]
"""A coroutine function or a plain one; it runs in the worker's event loop."""
