"""Retention of ended jobs: all, none, a number, or a time. Logs and deduplication ids go with the record."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from glidemq_async import JobOptions, KeepJobs, Queue
from glidemq_async.storage import Storage
from tests.support.clocked_queue import HOUR, SECOND, Timed
from tests.support.helpers import AnyJob, AnyQueue, Heard, echo, ended, until, worker_of
from tests.support.stores import RunningStore


async def fail(job: AnyJob) -> None:
    await job.log("failing")
    raise ValueError("no")


async def log_and_echo(job: AnyJob) -> Any:
    await job.log("working")
    return job.data


async def run_all(queue: AnyQueue, count: int, handler: Any, **options: Any) -> list[AnyJob]:
    """Run this many jobs one after the other, each to its end."""
    jobs: list[AnyJob] = []
    async with worker_of(queue, handler) as worker:
        completed, failed = Heard(worker, "completed"), Heard(worker, "failed")
        for number in range(count):
            jobs.append(await queue.add("n", number, **options))
            await (failed if handler is fail else completed).next()
            await asyncio.sleep(0.002)  # no two end in the same millisecond, so their order is certain
    return jobs


@pytest.mark.everywhere
async def test_completed_jobs_are_kept_by_default(queue: AnyQueue) -> None:
    await run_all(queue, 3, echo)
    await run_all(queue, 2, echo, keep_completed=True)
    assert [job.data for job in await queue.get_jobs("completed")] == [1, 0, 2, 1, 0]


@pytest.mark.everywhere
async def test_retention_can_be_none(queue: AnyQueue, store: RunningStore) -> None:
    jobs = await run_all(queue, 3, log_and_echo, keep_completed=False)
    jobs += await run_all(queue, 2, fail, keep_failed=False)
    counts = await queue.get_job_counts()
    assert (counts["completed"], counts["failed"]) == (0, 0)
    assert [await queue.get_job(job.id) for job in jobs] == [None] * 5
    assert not [key for key in await store.keys() if ":job:" in key or ":logs:" in key]


@pytest.mark.everywhere
@pytest.mark.parametrize("keep", [2, KeepJobs(count=2), KeepJobs(age=3_600, count=2)])
async def test_retention_can_be_a_number(queue: AnyQueue, store: RunningStore, keep: Any) -> None:
    await run_all(queue, 5, log_and_echo, keep_completed=keep)
    await run_all(queue, 5, fail, keep_failed=keep)
    assert [job.data for job in await queue.get_jobs("completed")] == [4, 3]
    assert [job.data for job in await queue.get_jobs("failed")] == [4, 3]
    assert len([key for key in await store.keys() if ":job:" in key or ":logs:" in key]) == 8


async def test_completed_and_failed_jobs_have_separate_numbers(queue: AnyQueue) -> None:
    await run_all(queue, 3, echo, keep_completed=1, keep_failed=2)
    await run_all(queue, 3, fail, keep_completed=1, keep_failed=2)
    counts = await queue.get_job_counts()
    assert (counts["completed"], counts["failed"]) == (1, 2)


@pytest.mark.parametrize("age", [3_600, timedelta(hours=1)])
async def test_retention_can_be_a_time(timed: Timed, age: Any) -> None:
    old = await run_all(timed.queue, 3, log_and_echo, keep_completed=KeepJobs(age=age))
    await timed.clock.advance(2 * HOUR)
    new = await run_all(timed.queue, 1, echo, keep_completed=KeepJobs(age=age))
    assert [job.id for job in await timed.queue.get_jobs("completed")] == [new[0].id]
    assert await timed.queue.get_job(old[0].id) is None


async def test_jobs_settled_in_one_call_follow_their_own_policies(queue: AnyQueue) -> None:
    policies: list[Any] = [True, False, True, False]
    release = asyncio.Event()

    async def together(job: AnyJob) -> int:
        await release.wait()
        return int(job.data)

    async with worker_of(queue, together, concurrency=40) as worker:
        done = Heard(worker, "completed")
        await queue.add_bulk([("n", n, JobOptions(keep_completed=policies[n % 4])) for n in range(40)])
        await until(lambda: worker.running == 40)
        release.set()
        for _ in range(40):
            await done.next()
    kept = {job.data for job in await queue.get_jobs("completed")}
    assert kept == {n for n in range(40) if policies[n % 4]}


async def test_a_large_backlog_is_trimmed_in_steps(queue: AnyQueue) -> None:
    async with worker_of(queue, echo, concurrency=200) as worker:
        done = Heard(worker, "completed")
        await queue.add_bulk([("n", n, JobOptions(keep_completed=True)) for n in range(2_500)])
        for _ in range(2_500):
            await done.next()
        for _ in range(6):  # a step trims five hundred
            await queue.add("n", "last", keep_completed=10)
            await done.next()
    assert (await queue.get_job_counts())["completed"] == 10


async def test_a_thousand_completed_jobs_are_kept_by_default(queue: AnyQueue) -> None:
    async with worker_of(queue, echo, concurrency=200) as worker:
        done = Heard(worker, "completed")
        await queue.add_bulk([("n", n) for n in range(1_100)])
        for _ in range(1_100):
            await done.next()
    # If the last batch was small, up to 15 more stay until the next sweep.
    assert 1_000 <= (await queue.get_job_counts())["completed"] <= 1_015


async def test_the_default_of_the_queue_applies(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage, default_options=JobOptions(keep_completed=1)) as queue:
        jobs = await run_all(queue, 3, echo)
        assert [job.id for job in await queue.get_jobs("completed")] == [jobs[-1].id]


async def test_a_retried_job_no_longer_counts(queue: AnyQueue) -> None:
    job = (await run_all(queue, 1, fail))[0]
    await job.retry()
    assert (await queue.get_job_counts())["failed"] == 0
    async with worker_of(queue, echo):
        await ended(job)
    assert (await queue.get_job_counts())["completed"] == 1


async def expire(queue: AnyQueue, **options: Any) -> None:
    """Three jobs that expire before they start."""
    await queue.add_bulk([("n", number, JobOptions(ttl=0.001, **options)) for number in range(3)])
    await asyncio.sleep(0.005)  # however fast a worker starts, the job has expired
    async with worker_of(queue, echo) as worker:
        completed = Heard(worker, "completed")
        await queue.add("last", keep_completed=False)
        await completed.next()


async def revoke(queue: AnyQueue, **options: Any) -> None:
    """Three jobs that are revoked while they wait."""
    for job in await queue.add_bulk([("n", number, JobOptions(**options)) for number in range(3)]):
        await job.revoke()


@pytest.mark.parametrize("end", [expire, revoke])
@pytest.mark.parametrize(("keep", "kept"), [(False, 0), (2, 2), (KeepJobs(age=3_600, count=1), 1), (True, 3)])
async def test_jobs_that_the_server_fails_follow_their_options(queue: AnyQueue, end: Any, keep: Any, kept: int) -> None:
    await end(queue, keep_failed=keep)
    assert (await queue.get_job_counts())["failed"] == kept


async def test_an_expired_job_does_not_end_the_retention_of_others(timed: Timed) -> None:
    [kept] = await run_all(timed.queue, 1, fail, keep_failed=True)
    await timed.clock.advance(31 * 24 * HOUR)
    await timed.queue.add("n", keep_failed=True, ttl=1)
    await timed.clock.advance(2 * SECOND)
    for _ in range(2):
        await timed.fake_worker.sweep()
    assert (await timed.queue.get_job_counts())["failed"] == 2
    assert await timed.queue.get_job(kept.id) is not None
