"""The failure of a call, which `FlowCall.otherwise` passes to another task."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from glidemq_async.errors import JobFailed
from glidemq_async.stored.flow import JobRef


@dataclass(frozen=True, slots=True)
class CallFailure:
    """The failure of a call of a flow: the first argument of the task of `FlowCall.otherwise`.

    `queue` and `job_id` name the job of the call. `error_type` is the class name of its error, and `message` the text.
    A job that never failed itself has the cause as its `error_type`, for example "revoked" or "expired".
    """

    queue: str
    job_id: str
    error_type: str
    message: str


def stored_failure(ref: JobRef, error: JobFailed) -> dict[str, Any]:
    """Return a failure in its stored form, as the argument of a task."""
    return asdict(CallFailure(ref.queue, ref.job_id, error.error_type, error.message))
