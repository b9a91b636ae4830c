"""Pausing stops claims, and active jobs continue. Resuming starts jobs immediately."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glidemq_async import Queue
from glidemq_async.storage import Storage
from tests.support.helpers import (
    PATIENCE,
    AnyJob,
    AnyQueue,
    Gate,
    Heard,
    counts,
    echo,
    history,
    listening,
    soon,
    until,
    worker_of,
)


@pytest.mark.everywhere
async def test_a_paused_queue_starts_nothing(queue: AnyQueue) -> None:
    assert await queue.is_paused() is False
    await queue.pause()
    await queue.pause()
    assert await queue.is_paused() is True
    async with worker_of(queue, echo) as worker:
        job = await queue.add("n", 1)
        done, _ = await asyncio.wait([asyncio.create_task(job.result(0.2))])
        assert isinstance(done.pop().exception(), TimeoutError)
        assert (worker.running, await job.get_state()) == (0, "waiting")
        await queue.resume()
        await queue.resume()
        assert await job.result(5) == 1
    assert [event.kind for event in await history(queue)].count("paused") == 1


async def test_active_jobs_end_and_no_other_follows(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate) as worker:
        completed = Heard(worker, "completed")
        jobs = await queue.add_bulk([("n", number) for number in range(5)])
        await gate.running()
        await queue.pause()
        gate.release()
        await completed.next()
        await asyncio.sleep(0.1)
        assert gate.started.empty()
        assert await counts(queue) == {"waiting": 4, "completed": 1}
        await queue.resume()
        assert [await job.result(5) for job in jobs] == [0, 1, 2, 3, 4]


async def test_a_pause_outlives_workers_and_clients(storage: Storage, queue: AnyQueue) -> None:
    await queue.pause()
    job = await queue.add("n", 1)
    async with Queue[Any, Any](queue.name, storage) as other, worker_of(other, echo) as worker:
        assert await other.is_paused()
        await worker_settled(worker)
        assert await job.get_state() == "waiting"
        await other.resume()
        assert await job.result(5) == 1


async def worker_settled(worker: Any) -> None:
    """Wait until a worker has made a claim."""
    await until(lambda: worker.health().ready)


async def test_resuming_wakes_a_worker_for_each_waiting_job(queue: AnyQueue) -> None:
    gate = Gate()
    workers = [worker_of(queue, gate, concurrency=2) for _ in range(4)]
    for worker in workers:
        await worker.start()
    await queue.pause()
    await queue.add_bulk([("n", number) for number in range(8)])
    await queue.resume()
    for _ in range(8):
        await gate.running()
    counts = await queue.get_job_counts()
    assert (counts["active"], counts["waiting"]) == (8, 0)
    gate.release()
    for worker in workers:
        await worker.close()


async def paused_before_due(queue: AnyQueue, delay: float) -> AnyJob:
    """Add a delayed job, and pause the queue before the job is due. On a slow host, the first attempts are too late."""
    async with asyncio.timeout(PATIENCE):
        while True:
            job = await queue.add("n", 1, delay=delay)
            await queue.pause()
            if await job.get_state() == "delayed":
                return job
            await queue.resume()
            await job.result(PATIENCE)


async def test_jobs_due_during_a_pause_start_after_it(queue: AnyQueue) -> None:
    async with worker_of(queue, echo):
        due = await paused_before_due(queue, 0.05)
        later = await queue.add("n", 2, delay=0.4)
        await asyncio.sleep(0.1)
        await queue.resume()
        assert await due.result(5) == 1
        assert await later.result(5) == 2


@pytest.mark.everywhere
async def test_a_delayed_job_becomes_due_during_a_pause(queue: AnyQueue) -> None:
    async with worker_of(queue, echo, poll_interval=60), listening(queue) as events:
        early = await paused_before_due(queue, 0.1)
        late = await queue.add("n", 2, delay=0.1)
        due: list[str] = []
        while len(due) < 2:
            event = await events.next()
            due += [event.job_id] if event.kind == "waiting" and event.job_id in (early.id, late.id) else []
        assert due == [early.id, late.id]
        assert (await counts(queue))["waiting"] == 2
        await queue.resume()
        assert [await early.result(5), await late.result(5)] == [1, 2]


async def test_retries_wait_for_the_end_of_a_pause(queue: AnyQueue) -> None:
    runs: list[int] = []

    async def fail_once(job: AnyJob) -> str:
        runs.append(job.attempts_made)
        if not job.attempts_made:
            await queue.pause()
            raise ValueError("once")
        return "done"

    async with worker_of(queue, fail_once) as worker:
        retrying = Heard(worker, "retrying")
        job = await queue.add("n", attempts=2)
        await retrying.next()
        await asyncio.sleep(0.1)
        assert runs == [0]
        await queue.resume()
        assert await job.result(5) == "done"


async def test_a_burst_on_a_paused_queue_returns(queue: AnyQueue) -> None:
    await queue.add("n", 1)
    await queue.pause()
    await soon(worker_of(queue, echo).run(until_empty=True), 5)
    assert await queue.count() == 1
