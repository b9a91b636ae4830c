"""Completed plain jobs and completed jobs with a record: both count for the retention, and are listed together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from glidemq_async import JobOptions, KeepJobs
from glidemq_async.functions.outcomes import Retention
from tests.support.clocked_queue import Timed
from tests.support.fake_worker import FakeWorker, Lease
from tests.support.helpers import PATIENCE, AnyJob, AnyQueue, counts, echo, ended, worker_of
from tests.support.stores import RunningStore

everywhere = pytest.mark.everywhere


async def completed(queue: AnyQueue, *, oldest_first: bool = False) -> list[str]:
    """Return the ids of all completed jobs, read in small steps."""
    found: list[str] = []
    while True:
        at = len(found)
        step = await queue.get_jobs("completed", at, at + 2, newest_first=not oldest_first)
        if not step:
            return found
        found += [job.id for job in step]


async def complete_one_by_one(fake_worker: FakeWorker, leases: Sequence[Lease]) -> None:
    """Complete runs in this order, each in a millisecond of its own."""
    for lease in leases:
        await fake_worker.complete(lease)
        await asyncio.sleep(0.002)


def mixed(number: int) -> JobOptions:
    """Return the options of a plain job for even numbers, and of a job with a record for odd ones."""
    return JobOptions(job_id=f"own-{number}") if number % 2 else JobOptions()


async def claim_mixed(queue: AnyQueue, fake_worker: FakeWorker, count: int) -> list[Lease]:
    """Add and claim this many jobs of both kinds."""
    await queue.add_bulk([("n", number, mixed(number)) for number in range(count)])
    return await fake_worker.claim(count)


@everywhere
async def test_completed_jobs_of_both_kinds_are_listed_by_their_end(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    leases = await claim_mixed(queue, fake_worker, 9)
    await complete_one_by_one(fake_worker, leases)
    ids = [lease.id for lease in leases]
    assert await completed(queue, oldest_first=True) == ids
    assert await completed(queue) == ids[::-1]
    assert [job.id async for job in queue.iter_jobs("completed")] == ids[::-1]


@everywhere
async def test_every_completed_job_is_listed_once(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    """Plain jobs are listed by number. If they end in another order, a list is not sorted, but it is complete."""
    leases = await claim_mixed(queue, fake_worker, 12)
    ends = leases[::-1][:6] + leases[:6]
    await complete_one_by_one(fake_worker, ends)
    for oldest_first in (False, True):
        listed = await completed(queue, oldest_first=oldest_first)
        assert len(listed) == 12
        assert set(listed) == {lease.id for lease in leases}


async def test_more_completed_jobs_than_a_step_are_listed(queue: AnyQueue) -> None:
    async with worker_of(queue, echo, concurrency=50):
        jobs = await queue.add_bulk([("n", number, mixed(number)) for number in range(700)])
        for job in jobs:
            await job.result(10)
    listed = [job.id async for job in queue.iter_jobs("completed")]
    assert len(listed) == 700
    assert set(listed) == {job.id for job in jobs}


async def test_large_completed_jobs_are_all_listed(queue: AnyQueue) -> None:
    async with worker_of(queue, lambda _: None):
        jobs = [await ended(await queue.add("n", "x" * 300_000)) for _ in range(8)]
    assert [job.id async for job in queue.iter_jobs("completed")] == [job.id for job in jobs][::-1]


@pytest.mark.parametrize("oldest_first", [False, True])
async def test_listing_completed_jobs_does_not_read_the_waiting_ones(queue: AnyQueue, oldest_first: bool) -> None:
    async with worker_of(queue, echo):
        jobs = [await ended(await queue.add("n", number)) for number in range(3)]
    await queue.add_bulk([("n", "x" * 40_000) for _ in range(300)])
    ids = [job.id for job in jobs]
    assert await completed(queue, oldest_first=oldest_first) == (ids if oldest_first else ids[::-1])
    await queue.drain()


@everywhere
@pytest.mark.parametrize("kept", [0, 1, 5])
async def test_the_retention_counts_jobs_of_both_kinds(queue: AnyQueue, fake_worker: FakeWorker, kept: int) -> None:
    leases = await claim_mixed(queue, fake_worker, 12)
    for lease in leases:
        await fake_worker.complete(lease, retention=[Retention(kept, None, None)])
        await asyncio.sleep(0.002)
    assert await completed(queue, oldest_first=True) == [lease.id for lease in leases][12 - kept :]
    assert await counts(queue) == ({"completed": kept} if kept else {})
    assert await queue.check() == []


@everywhere
@pytest.mark.parametrize("kept", [0, 1, 5])
async def test_the_retention_holds_for_jobs_that_end_together(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kept: int
) -> None:
    leases = await claim_mixed(queue, fake_worker, 40)
    await fake_worker.complete(*leases, retention=[Retention(kept, None, None)] * 40)
    assert (await queue.get_job_counts())["completed"] == kept
    assert await queue.check() == []
    listed = await completed(queue)
    assert set(listed) <= {lease.id for lease in leases}
    assert await store.ask("XLEN", f"{fake_worker.base}:fifo") <= kept  # type: ignore[operator]


@everywhere
async def test_every_completed_job_is_kept_if_wanted(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    leases = await claim_mixed(queue, fake_worker, 30)
    await fake_worker.complete(*leases, retention=[Retention(None, None, None)] * 30)
    assert (await queue.get_job_counts())["completed"] == 30
    assert set(await completed(queue)) == {lease.id for lease in leases}


async def test_a_sweep_removes_jobs_of_both_kinds_that_are_too_old(timed: Timed) -> None:
    queue, fake_worker = timed.queue, timed.fake_worker
    leases = await claim_mixed(queue, fake_worker, 20)
    await fake_worker.complete(*leases[:10], retention=[Retention(None, 1_000, None)] * 10)
    assert (await queue.get_job_counts())["completed"] == 10
    await timed.clock.advance(1_001)
    await fake_worker.complete(*leases[10:], retention=[Retention(None, 1_000, None)] * 10)
    await fake_worker.sweep()
    assert set(await completed(queue)) == {lease.id for lease in leases[10:]}
    await timed.clock.advance(1_001)
    await fake_worker.sweep()
    assert await counts(queue) == {}
    assert await queue.check() == []


@everywhere
async def test_the_last_policy_applies_to_all_completed_jobs(queue: AnyQueue) -> None:
    async with worker_of(queue, echo):
        for number in range(6):
            [job] = await queue.add_bulk([("n", number, mixed(number))])
            await ended(job)
        last = await queue.add("n", "last", keep_completed=KeepJobs(count=2))
        async with asyncio.timeout(PATIENCE):
            while (await queue.get_job_counts())["completed"] > 2:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    assert (await completed(queue))[0] == last.id
    assert await queue.check() == []


KEPT = 20
KEEP = Retention(KEPT, None, None)


async def complete_many(queue: AnyQueue, fake_worker: FakeWorker, count: int) -> list[Lease]:
    """Add plain jobs and complete them, a few at a time."""
    done: list[Lease] = []
    for _ in range(0, count, 5):
        await queue.add_bulk([("n", 1)] * 5)
        leases = await fake_worker.claim(5)
        await fake_worker.complete(*leases, retention=[KEEP] * 5)
        done += leases
    return done


@everywhere
@pytest.mark.parametrize("ahead", [KEPT, 3 * KEPT])
async def test_a_long_run_does_not_vanish_with_its_neighbours(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, ahead: int
) -> None:
    """Its result stays until as many jobs have completed after it as the retention keeps, wherever it was added."""
    long = await queue.add("n", "long")
    [lease] = await fake_worker.claim()
    await complete_many(queue, fake_worker, ahead)
    # The entries of the others are deleted around it.
    assert await store.ask("XLEN", f"{fake_worker.base}:fifo") == KEPT + 1
    await fake_worker.complete(lease, retention=[KEEP])
    await asyncio.sleep(0.002)  # the others end in a later millisecond
    await complete_many(queue, fake_worker, KEPT - 5)
    assert await long.get_state() == "completed"
    await complete_many(queue, fake_worker, 10)
    assert await queue.get_job(long.id) is None
    assert (await queue.get_job_counts())["completed"] == KEPT
    assert await queue.check() == []


@everywhere
async def test_a_long_run_that_fails_runs_again(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    long = await queue.add("n", "long", attempts=2)
    [lease] = await fake_worker.claim()
    await complete_many(queue, fake_worker, 3 * KEPT)
    assert await fake_worker.settle(lease, "r", "0 no") is None
    [again] = await fake_worker.claim()
    assert (again.id, again.fence) == (long.id, 2)
    await asyncio.sleep(0.002)
    await fake_worker.complete(again, retention=[KEEP])
    assert (await completed(queue))[0] == long.id
    assert await queue.check() == []


@everywhere
async def test_ends_in_reverse_order_are_all_kept(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    await queue.add_bulk([("n", number) for number in range(KEPT)])
    leases = await fake_worker.claim(KEPT)
    for lease in leases[::-1]:
        await fake_worker.complete(lease, retention=[KEEP])
    assert (await queue.get_job_counts())["completed"] == KEPT
    assert set(await completed(queue)) == {lease.id for lease in leases}
    assert await queue.check() == []


async def results_of(jobs: Sequence[AnyJob]) -> list[object]:
    """Return the results of ended jobs."""
    return [await job.result(10) for job in jobs]


@everywhere
async def test_retrying_all_completed_jobs_starts_both_kinds(queue: AnyQueue) -> None:
    async with worker_of(queue, echo, concurrency=5):
        jobs = await queue.add_bulk([("n", number, mixed(number)) for number in range(10)])
        assert await results_of(jobs) == list(range(10))
        await queue.pause()
        assert await queue.retry_jobs("completed", 3) == 3
        assert await counts(queue) == {"waiting": 3, "completed": 7}
        assert await queue.retry_jobs("completed") == 7
        assert await counts(queue) == {"waiting": 10}
        await queue.resume()
        assert await results_of(jobs) == list(range(10))
    assert await queue.check() == []


@everywhere
async def test_cleaning_completed_jobs_removes_both_kinds(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    leases = await claim_mixed(queue, fake_worker, 10)
    await complete_one_by_one(fake_worker, leases)
    ids = [lease.id for lease in leases]
    assert await queue.clean(limit=4, state="completed") == ids[:4]
    assert await completed(queue, oldest_first=True) == ids[4:]
    assert await queue.clean(60, state="completed") == []
    assert sorted(await queue.clean(state="completed")) == sorted(ids[4:])
    assert await counts(queue) == {}
    assert await queue.check() == []


@everywhere
async def test_cleaning_waiting_jobs_removes_both_kinds(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    leases = await claim_mixed(queue, fake_worker, 4)
    await fake_worker.complete(*leases[:2])
    jobs = await queue.add_bulk([("n", number, mixed(number + 100)) for number in range(6)])
    await jobs[2].update_progress(1)
    assert await queue.clean(limit=3, state="waiting") == [job.id for job in jobs[:3]]
    assert await queue.clean(state="waiting") == [job.id for job in jobs[3:]]
    assert await counts(queue) == {"active": 2, "completed": 2}
    assert await queue.check() == []


@everywhere
async def test_draining_and_obliterating_remove_both_kinds(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    leases = await claim_mixed(queue, fake_worker, 6)
    await fake_worker.complete(*leases[:2])
    await fake_worker.settle(leases[2], "f")
    jobs = await queue.add_bulk([("n", number, mixed(number + 100)) for number in range(6)])
    await jobs[0].log("a line")
    assert await queue.drain() == 6
    assert await counts(queue) == {"active": 3, "completed": 2, "failed": 1}
    assert await queue.check() == []
    await queue.add_bulk([("n", number, mixed(number + 200)) for number in range(6)])
    assert await queue.obliterate(force=True) == 12
    assert await counts(queue) == {}
    assert await queue.check() == []
    async with worker_of(queue, echo):
        assert await queue.add_and_wait("n", "again", wait_timeout=10) == "again"
