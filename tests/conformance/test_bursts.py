"""Burst mode: a worker runs every job that it can claim, waits for their retries, and returns."""

from __future__ import annotations

import asyncio

import pytest

from glidemq_async import RateLimit
from tests.support.helpers import AnyJob, AnyQueue, Gate, Heard, echo, soon, worker_of


@pytest.mark.everywhere
async def test_a_burst_runs_everything_and_returns(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number) for number in range(120)])
    await queue.add("n", delay=60)
    worker = worker_of(queue, echo, concurrency=10)
    drained = Heard(worker, "drained")
    await soon(worker.run(until_empty=True))
    counts = await queue.get_job_counts()
    assert (counts["completed"], counts["waiting"], counts["active"], counts["delayed"]) == (120, 0, 0, 1)
    assert drained.count == 1


async def test_a_burst_on_an_empty_queue_returns_immediately(queue: AnyQueue) -> None:
    worker = worker_of(queue, echo)
    drained = Heard(worker, "drained")
    # A poll would come long after this time limit.
    await soon(worker.run(until_empty=True))
    assert not worker.health().ready
    assert drained.count == 1


@pytest.mark.parametrize("concurrency", [1, 7])
async def test_a_burst_waits_for_the_retries_of_its_jobs(queue: AnyQueue, concurrency: int) -> None:
    async def flaky(job: AnyJob) -> None:
        if job.attempts_made < 2:
            raise ValueError("not yet")

    for number in range(10):
        await queue.add("n", number, attempts=3, backoff=0.05 * (number % 3))
    await soon(worker_of(queue, flaky, concurrency=concurrency).run(until_empty=True))
    assert (await queue.get_job_counts())["completed"] == 10


async def test_a_burst_also_runs_jobs_that_its_jobs_add(queue: AnyQueue) -> None:
    async def breed(job: AnyJob) -> None:
        if job.data:
            await queue.add("n", job.data - 1)
            await queue.add("n", job.data - 1)

    await queue.add("n", 5)
    await soon(worker_of(queue, breed, concurrency=4).run(until_empty=True))
    counts = await queue.get_job_counts()
    assert (counts["completed"], counts["waiting"]) == (2**6 - 1, 0)


async def test_several_bursts_share_a_queue(queue: AnyQueue) -> None:
    runs: list[int] = []

    async def note(job: AnyJob) -> None:
        runs.append(job.data)
        await asyncio.sleep(0)

    await queue.add_bulk([("n", number) for number in range(300)])
    await soon(asyncio.gather(*(worker_of(queue, note, concurrency=5).run(until_empty=True) for _ in range(3))))
    assert sorted(runs) == list(range(300))


@pytest.mark.only_on("memory")
async def test_a_worker_that_was_not_started_raises(queue: AnyQueue) -> None:
    worker = worker_of(queue, echo)
    with pytest.raises(RuntimeError, match=r"has not been started; call start\(\)"):
        await worker.until_empty()
    await worker.close()


async def test_a_burst_can_be_stopped(queue: AnyQueue) -> None:
    gate = Gate()
    await queue.add_bulk([("n", number) for number in range(3)])
    worker = worker_of(queue, gate, shutdown_timeout=0)
    running = asyncio.create_task(worker.run(until_empty=True))
    await gate.running()
    worker.stop()
    await soon(running)
    assert await queue.count() == 3


async def test_failures_do_not_stop_a_burst(queue: AnyQueue) -> None:
    async def fail(job: AnyJob) -> None:
        raise ValueError("no")

    await queue.add_bulk([("n", number) for number in range(20)])
    await soon(worker_of(queue, fail, concurrency=3).run(until_empty=True))
    assert (await queue.get_job_counts())["failed"] == 20


async def test_a_burst_waits_for_jobs_that_a_limit_delays(queue: AnyQueue) -> None:
    await queue.set_key_limits("k", rate_limit=RateLimit(1, 0.1))
    await queue.pause_key("paused", 0.2)
    jobs = [await queue.add("n", number, key="k") for number in range(3)] + [await queue.add("n", key="paused")]
    await worker_of(queue, echo).run(until_empty=True)
    for job in jobs:
        assert await job.get_state() == "completed"
