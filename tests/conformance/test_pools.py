"""Entry points: running until stopped, signals, and several workers with one shutdown."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from glidemq_async import IncompatibleQueueError, Queue, QueueClosed, Worker, WorkerPool
from glidemq_async.executors import InlineExecutor
from glidemq_async.storage import Storage
from tests.support.helpers import AnyQueue, Gate, Heard, echo, soon, worker_of
from tests.support.stores import RunningStore


class NeverReady(InlineExecutor):
    """An executor whose start waits for ever or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.entered, self.left = asyncio.Event(), asyncio.Event()
        self._error = error

    async def start(self, freed: Callable[[], None]) -> None:
        self.entered.set()
        if self._error is not None:
            raise self._error
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()


async def test_a_worker_runs_until_stopped(queue: AnyQueue) -> None:
    worker = worker_of(queue, echo)
    running = asyncio.create_task(worker.run())
    assert await queue.add_and_wait("n", 1, wait_timeout=10) == 1
    worker.stop()
    await soon(running)


async def test_a_stop_before_the_start_takes_effect(queue: AnyQueue) -> None:
    job, worker = await queue.add("n"), worker_of(queue, echo)
    worker.stop()
    await soon(worker.run())
    assert await job.get_state() == "waiting"


async def test_a_stopped_start_leaves_no_worker_behind(queue: AnyQueue) -> None:
    for moments in range(120):
        worker = worker_of(queue, echo)
        running = asyncio.create_task(worker.run())
        for _ in range(moments):
            await asyncio.sleep(0)
        worker.stop()
        await soon(running)
        assert await queue.get_workers() == []


@pytest.mark.parametrize("pooled", [False, True], ids=["worker", "pool"])
async def test_a_stop_ends_a_slow_start(queue: AnyQueue, pooled: bool) -> None:
    executor = NeverReady()
    worker = worker_of(queue, echo, executor=executor)
    runs = WorkerPool([worker], handle_signals=False) if pooled else worker
    running = asyncio.create_task(runs.run())
    await soon(executor.entered.wait())
    runs.stop()
    await soon(running)
    assert executor.left.is_set()
    assert not running.cancelled()


@pytest.mark.parametrize("pooled", [False, True], ids=["worker", "pool"])
async def test_a_closed_worker_does_not_run_again(queue: AnyQueue, pooled: bool) -> None:
    worker = worker_of(queue, echo)
    runs = WorkerPool([worker], handle_signals=False) if pooled else worker
    await runs.close()
    with pytest.raises(QueueClosed, match="create a new one"):
        await soon(runs.run())


async def test_a_timeout_of_the_start_is_not_a_stop(queue: AnyQueue) -> None:
    executor = NeverReady(TimeoutError("too long"))
    with pytest.raises(TimeoutError, match="too long"):
        await soon(worker_of(queue, echo, executor=executor).run())


async def test_cancelling_run_shuts_down_gracefully(queue: AnyQueue) -> None:
    gate = Gate()
    worker = worker_of(queue, gate, shutdown_timeout=0)
    running = asyncio.create_task(worker.run())
    job = await queue.add("n", 1)
    await gate.running()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(running)
    assert await job.get_state() == "waiting"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_shuts_a_worker_down(queue: AnyQueue, number: signal.Signals) -> None:
    gate = Gate()
    before = signal.getsignal(number)
    worker = Worker[Any, Any](queue.name, gate, queue.storage, shutdown_timeout=5)
    running = asyncio.create_task(worker.run())
    job = await queue.add("n", 1)
    await gate.running()
    os.kill(os.getpid(), number)
    await asyncio.sleep(0.05)
    assert not running.done()
    gate.release()
    await soon(running)
    assert await job.get_state() == "completed"
    assert signal.getsignal(number) == before


@pytest.mark.everywhere
async def test_a_pool_runs_several_queues(storage: Storage, name: str) -> None:
    queues: list[AnyQueue] = [Queue(f"{name}-{number}", storage) for number in range(3)]
    pool = WorkerPool([worker_of(queue, echo) for queue in queues], handle_signals=False)
    async with pool:
        values = [await queue.add_and_wait("n", number, wait_timeout=10) for number, queue in enumerate(queues)]
    assert values == [0, 1, 2]
    for queue in queues:
        await queue.close()


async def test_a_pool_has_one_shutdown_for_all(queue: AnyQueue) -> None:
    gate = Gate()
    workers = [worker_of(queue, gate) for _ in range(3)]
    closed = [Heard(worker, "closed") for worker in workers]
    pool = WorkerPool(workers)
    running = asyncio.create_task(pool.run())
    jobs = await queue.add_bulk([("n", number) for number in range(3)])
    for _ in jobs:
        await gate.running()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.05)
    assert not running.done()
    gate.release()
    await soon(running)
    assert [heard.count for heard in closed] == [1, 1, 1]
    assert (await queue.get_job_counts())["completed"] == 3


async def test_a_pool_runs_bursts(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number) for number in range(50)])
    pool = WorkerPool([worker_of(queue, echo) for _ in range(3)], handle_signals=False)
    await soon(pool.run(until_empty=True))
    assert (await queue.get_job_counts())["completed"] == 50


async def test_a_pool_can_be_stopped(queue: AnyQueue) -> None:
    pool = WorkerPool([worker_of(queue, echo) for _ in range(2)], handle_signals=False)
    running = asyncio.create_task(pool.run())
    assert await queue.add_and_wait("n", 1, wait_timeout=10) == 1
    pool.stop()
    await soon(running)
    await pool.close()


async def test_a_worker_that_cannot_start_ends_the_others(queue: AnyQueue, store: RunningStore) -> None:
    key = f"glide:{{{queue.name}-foreign}}:meta"
    await store.ask("SET", key, "ours")
    try:
        good = worker_of(queue, echo)
        closed = Heard(good, "closed")
        bad = Worker[Any, Any](f"{queue.name}-foreign", echo, queue.storage)
        with pytest.raises(IncompatibleQueueError):
            await soon(WorkerPool([good, bad], handle_signals=False).run())
        assert closed.count == 1
    finally:
        await store.ask("DEL", key)


@pytest.mark.only_on("memory")
def test_a_pool_needs_a_worker(store: RunningStore) -> None:
    with pytest.raises(ValueError, match="at least one"):
        WorkerPool([])
