"""Wake-ups: an idle worker starts a new job immediately, without polling, and no wake-up is lost between two calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from glidemq_async import Queue
from glidemq_async.storage import Storage, Subscription
from tests.support.helpers import AnyQueue, Gate, echo, idle, soon, worker_of
from tests.support.recording_storage import Relay
from tests.support.stores import RunningStore
from tests.support.waiting_jobs import idle_workers
from tests.support.wakeup_latency import starts_immediately


@pytest.mark.everywhere
async def test_an_idle_worker_starts_a_new_job_within_milliseconds(queue: AnyQueue) -> None:
    await starts_immediately(queue, 21)


async def test_every_return_to_waiting_wakes_a_worker(queue: AnyQueue) -> None:
    """Adding, adding in bulk, promoting, becoming due, retrying and resuming need no poll."""
    async with worker_of(queue, echo) as worker:
        await idle(worker)
        first = await queue.add("n", 1)
        assert await first.result(5) == 1
        bulk = await queue.add_bulk([("n", 2), ("n", 3)])
        assert [await job.result(5) for job in bulk] == [2, 3]
        delayed = await queue.add("n", 4, delay=60)
        await delayed.promote()
        assert await delayed.result(5) == 4
        due = await queue.add("n", 5, delay=0.1)
        assert await due.result(5) == 5
        await first.retry()
        assert await first.result(5) == 1
        await queue.pause()
        paused = await queue.add("n", 6)
        await queue.resume()
        assert await paused.result(5) == 6


async def test_a_released_job_wakes_another_worker(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, shutdown_timeout=0):
        job = await queue.add("n", 1)
        await gate.running()
        async with worker_of(queue, echo) as other:
            await idle(other)
            leaving = worker_of(queue, gate)
            await leaving.start()
            await leaving.close()
    async with worker_of(queue, echo):
        assert await job.result(5) == 1


async def test_a_bulk_add_wakes_as_many_workers_as_its_jobs_need(queue: AnyQueue) -> None:
    gate = Gate()
    workers = [worker_of(queue, gate, concurrency=2) for _ in range(5)]
    for worker in workers:
        await worker.start()
    for worker in workers:
        await idle(worker)
    await queue.add_bulk([("n", number) for number in range(10)])
    for _ in range(10):
        await gate.running()
    assert [worker.running for worker in workers] == [2] * 5
    gate.release()
    for worker in workers:
        await worker.close()


async def test_one_job_wakes_one_worker(storage: Storage, name: str, store: RunningStore) -> None:
    relay = Relay(storage)
    async with Queue[Any, Any](name, relay) as queue:
        workers = [worker_of(queue, echo) for _ in range(20)]
        for worker in workers:
            await worker.start()
        await idle_workers(queue, store, len(workers))
        await relay.quiet(queue)
        relay.calls.clear()
        assert await queue.add_and_wait("n", 1, wait_timeout=5) == 1
        await relay.quiet(queue)
        claims = [call for call in relay.calls if call == "settleAndClaim"]
        assert len(claims) <= 3
        for worker in workers:
            await worker.close()


class HeardRelay(Relay):
    """Sets an event when a worker has received a message on its own channel."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.woken = asyncio.Event()

    async def subscribe(
        self, key: str, channel: str, on_message: Callable[[bytes], None], on_change: Callable[[bool], None]
    ) -> Subscription:
        def heard(message: bytes) -> None:
            on_message(message)
            if ":wake:" in channel:
                self.woken.set()

        return await super().subscribe(key, channel, heard, on_change)


async def test_a_wake_up_during_a_call_is_not_lost(storage: Storage, name: str) -> None:
    """The claim that found nothing is still on its way back when the next job is added."""
    relay = HeardRelay(storage)
    found_nothing, go_on = asyncio.Event(), asyncio.Event()

    async def hold(function: str, args: Sequence[Any], reply: Any) -> None:
        if function == "settleAndClaim" and isinstance(reply, list) and not reply[2] and "u" not in str(args[5]):
            found_nothing.set()
            await go_on.wait()

    relay.after_call = hold
    async with Queue[Any, Any](name, relay) as queue, worker_of(queue, echo):
        await soon(found_nothing.wait())
        job = await queue.add("n", 1)
        await soon(relay.woken.wait())
        relay.after_call = None
        go_on.set()
        assert await job.result(5) == 1


async def test_a_burst_of_adds_and_settles_starves_no_worker(queue: AnyQueue) -> None:
    workers = [worker_of(queue, echo, concurrency=3) for _ in range(4)]
    for worker in workers:
        await worker.start()
    for number in range(100):
        jobs = await asyncio.gather(*(queue.add("n", number) for _ in range(1 + number % 7)))
        for job in jobs:
            assert await job.result(5) == number
    for worker in workers:
        await worker.close()


@pytest.mark.untidy
async def test_a_dead_worker_delays_no_wake_up(queue: AnyQueue, storage: Storage) -> None:
    """The dead worker has no subscription, so the server wakes the next worker."""
    twin = storage.clone()
    dead = worker_of(Queue(queue.name, twin), echo, concurrency=50)
    await dead.start()
    await idle(dead)
    async with worker_of(queue, echo) as alive:
        await idle(alive)
        await twin.close()
        assert await (await queue.add("n", 1)).result(5) == 1
    await dead.close()


async def test_the_worker_with_the_timer_may_leave(queue: AnyQueue) -> None:
    """The worker that sleeps until the next due time passes the timer on when it leaves."""
    workers = [worker_of(queue, echo) for _ in range(3)]
    for worker in workers:
        await worker.start()
        await idle(worker)
    job = await queue.add("n", 1, delay=0.5)
    await workers[0].close()
    await workers[1].close()
    assert await job.result(5) == 1
    await workers[2].close()
