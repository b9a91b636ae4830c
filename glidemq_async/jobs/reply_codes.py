"""What the server's words about one job mean to whoever asked: errors, and why there is no result yet."""

from __future__ import annotations

from typing import Final

from glidemq_async.errors import JobNotFound, JobStateError, LeaseLost

WAITING_FOR: Final = {
    "waiting": "it is waiting: is a worker running on this queue, in this storage? (Two memory:// objects are two)",
    "active": "it is running",
    "delayed": "it is delayed, or waits for its next attempt",
    "prioritized": "it waits by priority, behind jobs of priority 0 and of lower numbers: are workers running?",
    "key-waiting": "it waits in the line of its key: are workers running, and does a job of this key run or rest?",
    "rate-limited": "its key is paused, or has used up its rate",
}
"""Why a job of a state has no result, and what to look at."""

_FITTING: Final = {
    "change the priority of": "only a job that has not started can change its priority",
    "change the delay of": "only a job that has not started can be delayed; in a handler raise RetryLater",
    "retry": "only a completed or failed job can be retried",
    "promote": "only a delayed job can be promoted",
    "change the result ttl of": "the job has not ended: give `result_ttl` when adding it",
    "revoke": "a job that has ended cannot be revoked; remove it instead",
}


def check_word(word: str, asked: str, job_id: str) -> None:
    """Raise what the word of a function says about a change of a job; nothing for "ok".

    Raises JobNotFound, LeaseLost, JobStateError.
    """
    if word == "ok":
        return
    if word == "missing":
        raise not_found(asked, job_id)
    if word == "stale":
        raise LeaseLost(
            f"asked to {asked} in job {job_id}, found that this run no longer holds the job: stop working on "
            "it; its result would be refused too"
        )
    state = word.removeprefix("state ")
    raise JobStateError(f"{asked} job {job_id}", state, _FITTING.get(asked, ""))


def not_found(asked: str, job_id: str) -> JobNotFound:
    """Return what is raised when something was asked of a job of which there is no record."""
    return JobNotFound(
        f"asked to {asked} job {job_id!r}, found no such job: it never was, was removed, or its retention is over"
    )
