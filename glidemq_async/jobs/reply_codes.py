"""The reply codes of functions that change one job, and the errors that they stand for."""

from __future__ import annotations

from typing import Final

from glidemq_async.errors import JobNotFound, JobStateError, LeaseLost

WAITING_FOR: Final = {
    "waiting": "it is waiting; check that a worker runs on this queue, and in this storage if it is memory://",
    "active": "it is running",
    "delayed": "it is delayed, or waits for its next attempt",
    "prioritized": "it waits behind jobs with a lower priority number; check that workers are running",
    "key-waiting": "it waits behind an earlier job of its key; check that workers are running",
    "waiting-children": "it waits for its children; check that workers run on their queues",
    "suspended": "it is suspended; send it a signal, or call resume_job",
    "rate-limited": "its key is paused or has reached its rate limit",
}
"""The reason why a job in a state has no result, with a hint."""

_FITTING: Final = {
    "change the priority of": "only a job that has not started can change its priority",
    "change the delay of": "only a job that has not started can be delayed; in a handler raise RetryLater",
    "retry": "only a completed or failed job can be retried",
    "restart": "only a run that has ended can be restarted",
    "accept": "only a failed run can be accepted",
    "fork": "",
    "promote": "only a delayed job can be promoted; resume a suspended one",
    "signal": "a job that has ended receives no signals",
    "resume": "only a suspended job can be resumed",
    "change the result ttl of": "the job has not ended; pass `result_ttl` when adding it",
    "revoke": "a job that has ended cannot be revoked; remove it instead",
}


def check_reply(code: str, asked: str, job_id: str) -> None:
    """Raise the error for the reply code of a change of a job. The code "ok" raises nothing.

    Raises JobNotFound, LeaseLost, JobStateError.
    """
    if code == "ok":
        return
    if code == "missing":
        raise not_found(asked, job_id)
    if code == "stale":
        raise LeaseLost(
            f"cannot {asked} job {job_id}: this run has lost the lease of the job; stop working on it, because its "
            "result will be refused too"
        )
    # Every other code names the state in which the server found the job. The check and the change are one call, so this
    # state is the reason for the refusal and not a later one.
    state = code.removeprefix("state ")
    raise JobStateError(f"{asked} job {job_id}", state, _FITTING.get(asked, ""))


def not_found(asked: str, job_id: str) -> JobNotFound:
    """Return the error for an operation on a job that has no record."""
    return JobNotFound(
        f"cannot {asked} job {job_id!r}: no such job. It was never added, it was removed, or its retention has expired"
    )
