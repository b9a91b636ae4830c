"""The job object that the function of a warm run has: the next run of the job updates it."""

from __future__ import annotations

from typing import Any, Final, cast

from glidemq_async import Job
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.functions.claimed_jobs import JobHistory
from glidemq_async.jobs.fields import LATER, JobFields
from glidemq_async.jobs.snapshot import continue_as, job_of_claim

CLIENT: Final = cast("QueueClient", object())
STAYS: Final = {"_client", "id", "name"}


def job_with(value: object) -> Job[Any, Any]:
    """Return a job all of whose attributes have this value, except for the ones that no run changes."""
    job = Job[Any, Any](CLIENT, "1", "wait")
    for name in set(JobFields.__slots__) - STAYS - {"_journal"}:
        setattr(job, name, value)
    return job


def with_value(job: Job[Any, Any], value: object) -> set[str]:
    """Return the attributes of the job that have this value."""
    return {name for name in JobFields.__slots__ if getattr(job, name) == value}


def test_each_attribute_of_a_job_that_was_read_gets_the_value_of_the_next_run() -> None:
    earlier = job_with("earlier")
    continue_as(earlier, job_with("following"))
    assert with_value(earlier, "earlier") == set()
    assert with_value(earlier, "following") | STAYS | {"_journal"} == set(JobFields.__slots__)


def test_an_attribute_that_only_a_read_sets_gets_its_first_value_without_one() -> None:
    earlier, following = job_with("earlier"), Job[Any, Any](CLIENT, "1", "wait")
    continue_as(earlier, following)
    assert with_value(earlier, "earlier") == set()
    assert {name: getattr(earlier, name) for name in LATER if name != "_abort"} == {
        name: first for name, first in LATER.items() if name != "_abort"
    }


def test_everything_that_a_claim_returns_is_taken() -> None:
    history = JobHistory(None, b"17", 3, 2, b"progress", b"letter", b"hand-over")
    following = job_of_claim(CLIENT, "1", "l1-0", 2, "wait", b"data", b"options", history, 19)
    earlier = job_with("earlier")
    continue_as(earlier, following)
    shown = {name: getattr(earlier, name) for name in JobFields.__slots__}
    assert shown == {name: getattr(following, name) for name in JobFields.__slots__}


def test_both_objects_have_one_abort_signal() -> None:
    earlier, following = (Job[Any, Any](CLIENT, "1", "wait") for _ in range(2))
    continue_as(earlier, following)
    assert earlier.abort is following.abort
