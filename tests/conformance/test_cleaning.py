"""Cleaning removes ended jobs above an age, the oldest first, up to a limit."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from glidemq_async import JobOptions, KeepJobs
from glidemq_async.client import result_listener
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import NO_POLLING, AnyJob, AnyQueue, ended, history, listening, worker_of
from tests.support.stores import RunningStore
from tests.support.waiting_jobs import EVERY_KIND, add_kind

KEEP = JobOptions(keep_completed=True, keep_failed=True)


async def by_parity(job: AnyJob) -> Any:
    await job.log("a line")
    if job.data % 2:
        raise ValueError("odd")
    return job.data


async def run(queue: AnyQueue, count: int, **options: Any) -> list[AnyJob]:
    """Run this many jobs one after the other: the even ones complete, the odd ones fail."""
    jobs = await queue.add_bulk([("n", number, KEEP) for number in range(count)])
    async with worker_of(queue, by_parity, **options):
        for job in jobs:
            await ended(job)
    return jobs


@pytest.mark.everywhere
@pytest.mark.parametrize("state", ["completed", "failed"])
async def test_cleaning_removes_all_data_of_a_job(queue: AnyQueue, store: RunningStore, state: Any) -> None:
    jobs = await run(queue, 6)
    wanted = [job.id for job in jobs if (job.data % 2 == 1) == (state == "failed")]
    waiting = await queue.add("n", 1)
    assert await queue.clean(0, 100, state) == wanted
    counts = await queue.get_job_counts()
    assert counts[state] == 0
    assert counts["completed"] + counts["failed"] == 3
    assert await waiting.get_state() == "waiting"
    keys = await store.keys()
    assert not [key for key in keys for job_id in wanted if key.endswith((f":job:{job_id}", f":logs:{job_id}"))]
    assert await queue.clean(0, 100, state) == []


async def test_cleaning_removes_the_oldest_up_to_the_limit(queue: AnyQueue) -> None:
    jobs = await run(queue, 10)
    even = [job.id for job in jobs if job.data % 2 == 0]
    assert await queue.clean(0, 2) == even[:2]
    assert await queue.clean(0, 0) == []
    assert await queue.clean(timedelta(0), 2, "completed") == even[2:4]
    assert await queue.clean() == even[4:]


async def test_jobs_that_ended_within_the_grace_stay(queue: AnyQueue, store: RunningStore) -> None:
    jobs = await run(queue, 4)
    key = f"glide:{{{queue.name}}}:completed"
    old = int(jobs[0].finished_at.timestamp() * 1000) - 60_000  # type: ignore[union-attr]  # pyright: ignore
    await store.ask("ZADD", key, old, jobs[0].id)
    assert await queue.clean(59, 10) == [jobs[0].id]
    assert await queue.clean(59, 10) == []
    assert await queue.clean(0, 10) == [jobs[2].id]


async def test_many_jobs_are_cleaned_in_many_steps(queue: AnyQueue) -> None:
    jobs = await queue.add_bulk([("n", 2 * number, KEEP) for number in range(1_300)])
    async with worker_of(queue, by_parity, concurrency=200):
        for job in jobs:
            await job.result(10)
    async with listening(queue) as events:
        first = await queue.clean(0, 1_100)
        event = await events.next()
        assert (event.kind, event.job_id, event.detail) == ("cleaned", "", "1100")
    rest = await queue.clean(0, 1_100)
    assert (len(first), len(rest)) == (1_100, 200)
    assert set(first) | set(rest) == {job.id for job in jobs}


async def test_cleaning_without_effect_publishes_no_event(queue: AnyQueue) -> None:
    await queue.add("n")
    assert await queue.clean(0, 10) == []
    assert [event.kind for event in await history(queue)] == ["added"]


async def test_cleaning_removes_a_record_that_was_kept_for_a_reply(
    queue: AnyQueue, store: RunningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The confirmation of the reply would remove the record, too.
    monkeypatch.setattr(result_listener, "CONFIRM_SECONDS", NO_POLLING)
    async with worker_of(queue, by_parity):
        assert await queue.add_and_wait("n", 4, wait_timeout=10, keep_completed=KeepJobs(count=0)) == 4
    assert await queue.clean(0, 10) == ["1"]
    assert not [key for key in await store.keys() if key.endswith((":held", ":job:1", ":logs:1"))]


async def test_many_jobs_are_retried_in_many_steps(queue: AnyQueue) -> None:
    jobs = await queue.add_bulk([("n", 2 * number + 1, KEEP) for number in range(1_200)])
    async with worker_of(queue, by_parity, concurrency=200):
        await all_failed(queue, len(jobs))
        assert await queue.retry_jobs(count=700) == 700
        await all_failed(queue, len(jobs))
        # They fail again immediately, while the rest is being restarted. None of them may start twice.
        assert await queue.retry_jobs() == 1_200
        await all_failed(queue, len(jobs))
    runs = [event.job_id for event in await history(queue) if event.kind == "active"]
    assert len(runs) == 1_200 + 700 + 1_200


@pytest.mark.parametrize("kind", sorted(EVERY_KIND))
async def test_a_retried_job_waits_as_it_did_before(queue: AnyQueue, store: RunningStore, kind: str) -> None:
    fake_worker = FakeWorker(queue, store)
    await add_kind(queue, 1, **EVERY_KIND[kind])
    job = (await queue.get_jobs("waiting") + await queue.get_jobs("prioritized") + await queue.get_jobs("key-waiting"))[
        0
    ]
    before = job.state
    (held,) = await fake_worker.claim()
    await fake_worker.settle(held, "f")
    assert await queue.retry_jobs() == 1
    assert await job.get_state() == before
    assert [lease.id for lease in await fake_worker.claim()] == [job.id]
    await fake_worker.leave()


async def test_failures_with_a_time_to_live_are_retried_too(queue: AnyQueue) -> None:
    options = JobOptions(result_ttl=3600)
    jobs = await queue.add_bulk([("n", 1, options) for _ in range(3)] + [("n", 1, KEEP)])
    async with worker_of(queue, by_parity):
        await all_failed(queue, len(jobs))
    # They stay for their whole time, however old the cleaned jobs may be.
    assert await queue.clean(0, 10, "failed") == [jobs[-1].id]
    assert await queue.retry_jobs(count=2) == 2
    assert await queue.retry_jobs() == 1
    assert (await queue.get_job_counts())["waiting"] == 3


async def all_failed(queue: AnyQueue, number: int) -> None:
    async with asyncio.timeout(20):
        while (await queue.get_job_counts())["failed"] < number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((-1, 10), ValueError, "grace"),
        ((float("nan"), 10), ValueError, "grace"),
        (("1", 10), TypeError, "grace"),
        ((0, -1), ValueError, "limit must be from 0"),
        ((0, 1.5), TypeError, "limit must be an int"),
        ((0, 10, "active"), ValueError, "state must be one of completed, failed, waiting"),
    ],
)
async def test_bad_arguments_are_refused(queue: AnyQueue, arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        await queue.clean(*arguments)
