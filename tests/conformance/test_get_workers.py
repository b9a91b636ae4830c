"""The workers of a queue, and their numbers of active jobs."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyQueue, AnyWorker, Gate, echo, until, worker_of
from tests.support.stores import RunningStore


async def known(queue: AnyQueue, *workers: AnyWorker) -> None:
    """Wait until the store knows these workers."""
    names = {worker.name for worker in workers}
    while not names <= {info.name for info in await queue.get_workers()}:
        pass


@pytest.mark.everywhere
async def test_a_worker_is_described(queue: AnyQueue) -> None:
    assert await queue.get_workers() == []
    began = datetime.now(UTC)
    gate = Gate()
    async with worker_of(queue, gate, concurrency=3, name="w") as worker:
        await queue.add_bulk([("n", number) for number in range(5)])
        for _ in range(3):
            await gate.running()
        await known(queue, worker)
        (info,) = await queue.get_workers()
        assert (info.name, info.host, info.pid) == (worker.name, platform.node(), os.getpid())
        assert (info.concurrency, info.running) == (3, 3)
        for instant in (info.started_at, info.last_seen):
            assert began - timedelta(seconds=1) < instant < datetime.now(UTC) + timedelta(seconds=1)
        gate.release()
        await until(lambda: worker.running == 0)
    assert await queue.get_workers() == []


async def test_the_longest_running_worker_comes_first(queue: AnyQueue) -> None:
    async with worker_of(queue, echo, name="z") as one:
        await known(queue, one)
        async with worker_of(queue, echo, name="a") as other:
            await known(queue, one, other)
            assert [info.name for info in await queue.get_workers()] == [one.name, other.name]


async def test_runs_of_both_streams_count(queue: AnyQueue, store: RunningStore) -> None:
    fake_worker = FakeWorker(queue, store)
    await queue.add_bulk([("n", number) for number in range(3)])
    first, *_ = await fake_worker.claim(2)
    await fake_worker.settle(first, "b")
    await fake_worker.claim(2)
    await fake_worker.renew()
    (info,) = await queue.get_workers()
    assert (info.name, info.running) == (fake_worker.name, 3)
    await fake_worker.leave()


async def test_a_silent_worker_is_omitted(queue: AnyQueue, store: RunningStore) -> None:
    fake_worker = FakeWorker(queue, store)
    await fake_worker.renew()
    (info,) = await queue.get_workers()
    key, seen = f"glide:{{{queue.name}}}:alive", int(info.last_seen.timestamp() * 1000)
    await store.ask("ZADD", key, seen - 50_000, fake_worker.name)
    assert len(await queue.get_workers()) == 1
    await store.ask("ZADD", key, seen - 61_000, fake_worker.name)
    assert await queue.get_workers() == []
    await fake_worker.leave()
