"""Leases have their full length, are reclaimed once even if several workers sweep, and limit the stalls of a poison
job.
"""

from __future__ import annotations

import asyncio

import pytest

from glidemq_async import JobFailed
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, Heard, echo, ended, job_events, worker_of
from tests.support.stores import RunningStore


@pytest.mark.everywhere
async def test_a_stalled_job_starts_on_another_worker(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    job = await queue.add("n", 1)
    [lease] = await fake_worker.claim(lock_ms=1_000)
    await fake_worker.vanish(lease, for_ms=1_100)
    async with worker_of(queue, echo):
        assert await fake_worker.sweep() == [job.id]
        assert await job.result(10) == 1
    await job.refresh()
    assert (job.stalled_count, job.attempts_made, job.fence) == (1, 1, 2)
    assert [kind for kind, _ in await job_events(queue, job.id)] == [
        "added",
        "active",
        "stalled",
        "active",
        "completed",
    ]


async def test_a_long_lease_is_not_shortened(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    await queue.add("n", "worker's")
    await queue.add("n", "job's", lock_duration=300)
    leases = await fake_worker.claim(2, lock_ms=300_000)
    await fake_worker.vanish(*leases, for_ms=290_000)
    assert await fake_worker.sweep() == []
    await fake_worker.vanish(*leases, for_ms=301_000)
    assert len(await fake_worker.sweep()) == 2


async def test_the_lease_of_a_job_overrides_the_default(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    await queue.add("n", lock_duration=2)
    leases = await fake_worker.claim(1, lock_ms=300_000)
    await fake_worker.vanish(*leases, for_ms=2_500)
    assert len(await fake_worker.sweep()) == 1


async def test_a_job_just_claimed_is_not_reclaimed(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    await queue.add("n")
    [lease] = await fake_worker.claim(lock_ms=1_000)
    assert await fake_worker.sweep() == []
    assert await fake_worker.renew(lease) == []


async def test_an_outage_does_not_end_valid_leases(
    queue: AnyQueue, fake_worker: FakeWorker, store: RunningStore
) -> None:
    """A worker that was present could not sweep for a long time. That time does not count."""
    await queue.add("n")
    await fake_worker.first_sweep(gap_ms=500)
    [lease] = await fake_worker.claim(lock_ms=1_000)
    await fake_worker.vanish(lease, for_ms=3_600_000)
    for field in ("seen_at", "settled_since"):
        await store.ask("HINCRBY", f"{fake_worker.base}:meta2", field, -3_600_000)
    assert await fake_worker.first_sweep(gap_ms=500) == []


async def test_many_stalled_jobs_are_reclaimed_together_and_in_order(
    queue: AnyQueue, fake_worker: FakeWorker, store: RunningStore
) -> None:
    await queue.add_bulk([("n", number) for number in range(350)])
    leases = await fake_worker.claim(350)
    await fake_worker.vanish(*leases)
    assert len(await FakeWorker(queue, store).sweep()) == 350
    assert [job.data async for job in queue.iter_jobs("waiting")] == list(range(350))


async def test_several_sweepers_count_one_stall(queue: AnyQueue, fake_worker: FakeWorker, store: RunningStore) -> None:
    job = await queue.add("n")
    [lease] = await fake_worker.claim()
    await fake_worker.vanish(lease)
    sweepers = [FakeWorker(queue, store) for _ in range(5)]
    recovered = await asyncio.gather(*(sweeper.sweep() for sweeper in sweepers))
    assert sum(map(len, recovered)) == 1
    await job.refresh()
    assert job.stalled_count == 1


async def test_a_job_that_stalls_repeatedly_fails(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    job = await queue.add("n", attempts=10)
    for _ in range(2):
        [lease] = await fake_worker.claim()
        await fake_worker.vanish(lease)
        assert await fake_worker.sweep(max_stalled=2) == [job.id]
    [lease] = await fake_worker.claim()
    await fake_worker.vanish(lease)
    assert await fake_worker.sweep(max_stalled=2) == []
    with pytest.raises(JobFailed, match="stalled"):
        await job.result(10)
    await job.refresh()
    assert (job.state, job.failed_reason, job.stalled_count) == ("failed", "stalled", 3)


async def test_a_revoked_job_whose_worker_died_does_not_start_again(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    job = await queue.add("n")
    [lease] = await fake_worker.claim()
    assert await job.revoke() is False
    await fake_worker.vanish(lease)
    assert await fake_worker.sweep() == []
    await job.refresh()
    assert (job.state, job.failed_reason) == ("failed", "revoked")


async def test_a_worker_sweeps_and_reports_it(queue: AnyQueue, fake_worker: FakeWorker, store: RunningStore) -> None:
    async with worker_of(queue, echo, lock_duration=1) as worker:
        stalled = Heard(worker, "stalled")
        await queue.pause()
        job = await queue.add("n", 1)
        await queue.resume()
        await job.result(10)
        await queue.pause()
    await job.retry()
    await queue.resume()
    [lease] = await fake_worker.claim(lock_ms=1_000)
    await fake_worker.vanish(lease)
    async with worker_of(queue, echo, lock_duration=1) as worker:
        stalled = Heard(worker, "stalled")
        assert await stalled.next() == ([job.id], [])
        assert await job.result(10) == 1


async def test_long_jobs_of_a_living_worker_do_not_stall(queue: AnyQueue) -> None:
    async def long(job: AnyJob) -> str:
        await asyncio.sleep(1.6)
        return "done"

    async with worker_of(queue, long, lock_duration=1, concurrency=3) as worker:
        stalled = Heard(worker, "stalled")
        jobs = await queue.add_bulk([("n", number) for number in range(3)])
        for job in jobs:
            await ended(job)
        assert stalled.count == 0
    assert {(job.state, job.stalled_count, job.fence) for job in jobs} == {("completed", 0, 1)}
