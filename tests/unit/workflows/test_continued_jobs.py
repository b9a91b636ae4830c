"""The job object that the function of a warm run has: the next run of the job updates it."""

from __future__ import annotations

from typing import Any, Final, cast

from glidemq_async import Job
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.jobs.fields import LATER, JobFields
from glidemq_async.jobs.snapshot import continue_as

CLIENT: Final = cast("QueueClient", object())
STAYS: Final = {"_client", "id", "name"}


def job_with(value: object) -> Job[Any, Any]:
    """Return a job all of whose attributes have this value, except for the ones that no run changes."""
    job = Job[Any, Any](CLIENT, "1", "wait")
    for name in set(JobFields.__slots__) - STAYS - {"_journal"}:
        setattr(job, name, value)
    return job


def test_each_attribute_gets_the_value_of_the_next_run_or_its_first_value() -> None:
    earlier, following = job_with("earlier"), job_with("following")
    continue_as(earlier, following)
    kept = {name for name in JobFields.__slots__ if getattr(earlier, name) == "earlier"}
    reset = {name for name in JobFields.__slots__ if name in LATER and getattr(earlier, name) == LATER[name]}
    taken = {name for name in JobFields.__slots__ if getattr(earlier, name) == "following"}
    assert kept == set()
    assert taken | reset | STAYS == set(JobFields.__slots__)
    assert {"state", "fence", "_entry", "_data_bytes", "_started", "_handed", "attempts_made", "_abort"} <= taken


def test_both_objects_have_one_abort_signal() -> None:
    earlier, following = (Job[Any, Any](CLIENT, "1", "wait") for _ in range(2))
    continue_as(earlier, following)
    assert earlier.abort is following.abort
