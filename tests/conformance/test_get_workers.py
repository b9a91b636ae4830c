"""The workers of a queue, and their numbers of active jobs."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.fake_worker import Hands
from tests.support.helpers import AnyQueue, AnyWorker, Gate, echo, until, worker_of
from tests.support.stores import Place


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


async def test_runs_of_both_streams_count(queue: AnyQueue, place: Place) -> None:
    hands = Hands(queue, place)
    await queue.add_bulk([("n", number) for number in range(3)])
    first, *_ = await hands.claim(2)
    await hands.settle(first, "b")
    await hands.claim(2)
    await hands.renew()
    (info,) = await queue.get_workers()
    assert (info.name, info.running) == (hands.name, 3)
    await hands.leave()


async def test_a_silent_worker_is_omitted(queue: AnyQueue, place: Place) -> None:
    hands = Hands(queue, place)
    await hands.renew()
    (info,) = await queue.get_workers()
    key, seen = f"glide:{{{queue.name}}}:alive", int(info.last_seen.timestamp() * 1000)
    await place.ask("ZADD", key, seen - 50_000, hands.name)
    assert len(await queue.get_workers()) == 1
    await place.ask("ZADD", key, seen - 61_000, hands.name)
    assert await queue.get_workers() == []
    await hands.leave()
