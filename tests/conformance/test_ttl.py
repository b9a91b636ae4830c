"""Time to live: a job that has not started in time fails as "expired"."""

from __future__ import annotations

import asyncio

import pytest

from glidemq_async import JobFailed
from tests.support.clocked_queue import MINUTE, Timed
from tests.support.helpers import AnyQueue, Gate, echo, ended, job_events, worker_of


@pytest.mark.everywhere
async def test_a_job_that_waits_too_long_expires(queue: AnyQueue) -> None:
    job = await queue.add("n", 1, ttl=0.05)
    other = await queue.add("n", 2)
    await asyncio.sleep(0.1)
    async with worker_of(queue, echo):
        with pytest.raises(JobFailed, match="expired"):
            await job.result(10)
        assert await other.result(10) == 2
    await job.refresh()
    assert (job.state, job.failed_reason, job.attempts_made) == ("failed", "expired", 0)
    assert [kind for kind, _ in await job_events(queue, job.id)] == ["added", "failed"]


async def test_a_job_that_starts_in_time_does_not_expire(timed: Timed) -> None:
    gate = Gate()
    async with worker_of(timed.queue, gate):
        job = await timed.queue.add("n", 1, ttl=60)
        await gate.running()
        await timed.clock.advance(2 * MINUTE)
        gate.release()
        assert await job.result(10) == 1


async def test_several_events_of_a_job_in_one_call_are_in_order(queue: AnyQueue) -> None:
    async with worker_of(queue, echo):
        # The claim that promotes the job finds it expired. (If a sweep comes first, the job is never promoted.)
        job = await queue.add("n", 1, ttl=0.05, delay=0.2)
        assert (await ended(job)).failed_reason == "expired"
    kinds = [kind for kind, _ in await job_events(queue, job.id) if kind != "waiting"]
    assert kinds == ["added", "delayed", "failed"]
    assert [kind for kind, _ in await job_events(queue, job.id)][-1] == "failed"


async def test_a_retry_does_not_expire(timed: Timed) -> None:
    await timed.queue.add("n", ttl=60, attempts=2)
    [lease] = await timed.fake_worker.claim()
    await timed.fake_worker.settle(lease, "r", "90000 once")
    await timed.clock.advance(2 * MINUTE)
    assert await timed.run() == ["n"]


async def test_an_expired_job_fails_even_if_no_worker_can_claim_it(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, lock_duration=1):
        busy = await queue.add("n", "busy")
        await gate.running()
        late = await queue.add("n", "late", ttl=0.05)
        delayed = await queue.add("n", "delayed", ttl=0.05, delay=60)
        assert (await ended(late)).failed_reason == "expired"
        assert (await ended(delayed)).failed_reason == "expired"
        gate.release()
        assert await busy.result(10) == "busy"


async def test_a_pause_does_not_stop_the_time_to_live(queue: AnyQueue) -> None:
    async with worker_of(queue, echo, lock_duration=1):
        await queue.pause()
        job = await queue.add("n", ttl=0.05)
        assert (await ended(job)).failed_reason == "expired"


async def test_an_expired_job_that_is_retried_by_hand_runs(queue: AnyQueue) -> None:
    job = await queue.add("n", 1, ttl=0.05)
    await asyncio.sleep(0.1)
    async with worker_of(queue, echo):
        await ended(job)
        await job.retry()
        assert (await ended(job)).state == "completed"


async def test_one_expired_job_among_many_fails(queue: AnyQueue) -> None:
    dead = [await queue.add("n", n, ttl=0.05) for n in range(150)]
    live = [await queue.add("n", n, ttl=60) for n in range(150)]
    await asyncio.sleep(0.1)
    async with worker_of(queue, echo, concurrency=20):
        for job in (*dead, *live):
            await ended(job)
    assert {job.state for job in dead} == {"failed"}
    assert {job.state for job in live} == {"completed"}
