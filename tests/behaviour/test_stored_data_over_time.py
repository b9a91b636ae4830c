"""Stored data over minutes and days, on a server whose clock the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from glidemq_async import KeepJobs, Queue
from glidemq_async.functions.callers import Functions
from glidemq_async.storage import Endpoint, MemoryStorage, Storage
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, Gate, Heard, echo, ended, worker_of
from tests.support.leak_check import verify
from tests.support.stores import RunningStore

MINUTE = 60_000
DAY = 86_400_000


class Clock:
    """The server's clock."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._shift = 0

    async def advance(self, ms: int) -> None:
        """Move the clock by this many milliseconds."""
        self._shift += ms
        await self._storage.call("testControl", "glide:{q}", ["clock_shift", self._shift])


@pytest.fixture
async def storage() -> AsyncIterator[Storage]:
    async with MemoryStorage(testing=True) as opened:
        yield opened
        await verify(opened, RunningStore("memory", opened.url, (Endpoint(path=opened.socket),)))


@pytest.fixture
async def clock(storage: Storage) -> Clock:
    return Clock(storage)


@pytest.fixture
async def queue(storage: Storage) -> AsyncIterator[AnyQueue]:
    async with Queue[Any, Any]("q", storage) as opened:
        yield opened


@pytest.fixture
async def fake_worker(queue: AnyQueue, storage: MemoryStorage) -> FakeWorker:
    return FakeWorker(queue, RunningStore("memory", storage.url, (Endpoint(path=storage.socket),)))


async def fail(job: AnyJob) -> None:
    raise ValueError("no")


async def test_an_awaited_result_without_retention_stays_for_a_minute(
    queue: AnyQueue, clock: Clock, fake_worker: FakeWorker
) -> None:
    job = await queue.add("n", 1, job_id="asked", keep_completed=False)
    # A client that waits and dies. A live one confirms the result within moments, which ends the minute.
    await Functions(queue.storage, "glide:{q}").job_waiters.add(job.id, "died")
    async with worker_of(queue, echo) as worker:
        await Heard(worker, "completed").next()
    assert await queue.get_job("asked") is not None
    await clock.advance(MINUTE // 2)
    await fake_worker.sweep()
    assert await queue.get_job("asked") is not None
    await clock.advance(MINUTE)
    await fake_worker.sweep()
    assert await queue.get_job("asked") is None
    assert set((await queue.get_job_counts()).values()) == {0}


async def test_completed_jobs_are_kept_for_a_day_and_failed_ones_for_a_month(
    queue: AnyQueue, clock: Clock, fake_worker: FakeWorker
) -> None:
    async with worker_of(queue, echo):
        await ended(await queue.add("n", 1))
    async with worker_of(queue, fail):
        await ended(await queue.add("n", 2))
    await clock.advance(DAY - MINUTE)
    await fake_worker.sweep()
    assert (await queue.get_job_counts())["completed"] == 1
    await clock.advance(2 * MINUTE)
    await fake_worker.sweep()
    counts = await queue.get_job_counts()
    assert (counts["completed"], counts["failed"]) == (0, 1)
    await clock.advance(30 * DAY)
    await fake_worker.sweep()
    assert (await queue.get_job_counts())["failed"] == 0


async def test_a_custom_age_is_applied_by_the_next_job_that_ends(queue: AnyQueue, clock: Clock) -> None:
    async with worker_of(queue, echo) as worker:
        completed = Heard(worker, "completed")
        await queue.add("n", 1, keep_completed=KeepJobs(age=3_600))
        await completed.next()
        await clock.advance(3_500_000)
        await queue.add("n", 2, keep_completed=KeepJobs(age=3_600))
        await completed.next()
        assert (await queue.get_job_counts())["completed"] == 2
        await clock.advance(200_000)
        await queue.add("n", 3, keep_completed=KeepJobs(age=3_600))
        await completed.next()
    assert {job.data for job in await queue.get_jobs("completed")} == {2, 3}


async def test_a_job_delayed_for_days_starts_when_they_have_passed(queue: AnyQueue, clock: Clock) -> None:
    job = await queue.add("n", 1, delay=3 * 86_400)
    await clock.advance(3 * DAY - MINUTE)
    await worker_of(queue, echo).run(until_empty=True)
    assert await job.get_state() == "delayed"
    await clock.advance(2 * MINUTE)
    await worker_of(queue, echo).run(until_empty=True)
    assert await job.get_state() == "completed"


async def test_a_job_expires_by_the_servers_clock(queue: AnyQueue, clock: Clock) -> None:
    job = await queue.add("n", 1, ttl=3_600)
    await clock.advance(3_601_000)
    await worker_of(queue, echo).run(until_empty=True)
    await job.refresh()
    assert (job.state, job.failed_reason) == ("failed", "expired")


async def test_a_clock_that_jumps_forward_ends_no_lease(queue: AnyQueue, clock: Clock) -> None:
    gate = Gate()
    async with worker_of(queue, gate, lock_duration=30) as worker:
        stalled = Heard(worker, "stalled")
        job = await queue.add("n", 1)
        await gate.running()
        await clock.advance(DAY)
        assert await FakeWorker(queue, RunningStore("none", "", ())).first_sweep(gap_ms=10**12) == []
        gate.release()
        assert await job.result(10) == 1
        assert stalled.count == 0


async def test_jobs_start_after_the_clock_jumped_back(queue: AnyQueue, clock: Clock) -> None:
    await clock.advance(DAY)
    await queue.add("n", 1)
    async with worker_of(queue, echo):
        await clock.advance(-DAY)
        assert await (await queue.add("n", 2)).result(10) == 2
        assert await (await queue.add("n", 3, delay=0.05)).result(10) == 3


async def test_workers_that_left_long_ago_are_forgotten(
    queue: AnyQueue, clock: Clock, fake_worker: FakeWorker, storage: Storage
) -> None:
    await queue.add("n", 1)
    [lease] = await fake_worker.claim()
    await fake_worker.renew(lease)
    await fake_worker.settle(lease)
    assert len(await fake_worker.consumers()) == 1
    await clock.advance(6 * MINUTE)
    await fake_worker.sweep()
    assert await fake_worker.consumers() == []


async def test_an_idle_worker_is_woken_after_an_outage(queue: AnyQueue, clock: Clock, fake_worker: FakeWorker) -> None:
    # For example, the machine was suspended: no worker could renew, and a sweep comes before the first renewal.
    async with worker_of(queue, echo):
        assert await (await queue.add("n", 1)).result(10) == 1
        await clock.advance(6 * MINUTE)
        await fake_worker.first_sweep(15_000)
        assert len(await queue.get_workers()) <= 1
        assert await (await queue.add("n", 2)).result(5) == 2
