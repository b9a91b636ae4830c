"""Searching by state, name and data. The limit counts matches, not the jobs that were compared."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import JobOptions
from tests.support.helpers import AnyJob, AnyQueue, Gate, ended, worker_of
from tests.support.stores import RunningStore


async def failing(job: AnyJob) -> Any:
    if job.name == "bad":
        raise ValueError("bad")
    return job.data


async def ids(queue: AnyQueue, **filters: Any) -> list[str]:
    """Return the ids of the jobs that a search finds."""
    return [job.id for job in await queue.search_jobs(**filters)]


@pytest.mark.everywhere
async def test_jobs_are_found_by_state_name_and_data(queue: AnyQueue) -> None:
    async with worker_of(queue, failing):
        for name in ("good", "bad"):
            await ended(await queue.add(name, {"tenant": 7, "page": 1}, job_id=f"{name} over"))
    await queue.add("good", {"tenant": 7, "page": 2}, job_id="good waits")
    await queue.add("good", {"tenant": 8}, job_id="good later", delay=60)
    await queue.add("other", 7, job_id="seven")
    assert set(await ids(queue)) == {"good over", "bad over", "good waits", "good later", "seven"}
    assert await ids(queue, state="waiting") == ["good waits", "seven"]
    assert set(await ids(queue, name="good")) == {"good over", "good waits", "good later"}
    assert await ids(queue, state="waiting", name="good") == ["good waits"]
    assert set(await ids(queue, data={"tenant": 7})) == {"good over", "bad over", "good waits"}
    assert set(await ids(queue, name="good", data={"tenant": 7})) == {"good over", "good waits"}
    assert await ids(queue, data={"tenant": 7, "page": 2}) == ["good waits"]
    assert await ids(queue, data=7) == ["seven"]
    assert await ids(queue, name="goo") == []
    assert await ids(queue, data={"tenant": 7, "missing": None}) == []
    assert len(await ids(queue, data={})) == 4


async def test_active_jobs_are_found(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate):
        job = await queue.add("n", {"a": 1})
        await gate.running()
        (found,) = await queue.search_jobs("active", "n", {"a": 1})
        assert (found.id, found.state, found.data) == (job.id, "active", {"a": 1})
        gate.release()


async def test_nested_values_must_be_equal(queue: AnyQueue) -> None:
    await queue.add("n", {"a": {"b": 1, "c": 2}})
    assert await ids(queue, data={"a": {"b": 1, "c": 2}}) == ["1"]
    assert await ids(queue, data={"a": {"b": 1}}) == []


@pytest.mark.parametrize("by_name", [True, False])
async def test_the_limit_counts_matches_and_not_candidates(queue: AnyQueue, by_name: bool) -> None:
    # The matching jobs come after more than a page of others.
    await queue.add_bulk([("common", {"rare": False}) for _ in range(1_100)])
    await queue.add_bulk([("rare" if by_name else "common", {"rare": True}) for _ in range(3)])
    filters: dict[str, Any] = {"name": "rare"} if by_name else {"data": {"rare": True}}
    assert await ids(queue, limit=2, **filters) == ["1101", "1102"]
    assert await ids(queue, limit=100, **filters) == ["1101", "1102", "1103"]
    assert await ids(queue, limit=0, **filters) == []
    assert len(await ids(queue)) == 100


async def test_data_that_cannot_be_read_matches_no_data(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n", {"a": 1}, job_id="own")
    await store.ask("HSET", f"glide:{{{queue.name}}}:job:{job.id}", "data", b"\xc1")
    assert await ids(queue, data={"a": 1}) == []
    assert await ids(queue, name="n") == [job.id]


async def test_every_state_is_searched_when_none_is_named(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", 1, JobOptions(delay=60)) for _ in range(600)])
    await queue.add_bulk([("n", 1) for _ in range(600)])
    assert len(await queue.search_jobs(name="n", limit=2_000)) == 1_200


@pytest.mark.parametrize(
    ("filters", "error", "message"),
    [
        ({"state": "gone"}, ValueError, "state must be one of waiting"),
        ({"name": 7}, TypeError, "job name must be a str"),
        ({"name": ""}, ValueError, "job name must not be empty"),
        ({"limit": -1}, ValueError, "limit must be from 0"),
        ({"limit": True}, TypeError, "limit must be an int"),
    ],
)
async def test_bad_arguments_are_refused(
    queue: AnyQueue, filters: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await queue.search_jobs(**filters)
