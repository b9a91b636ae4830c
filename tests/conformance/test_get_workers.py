"""The workers of a queue, and their numbers of active jobs."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgpack
import pytest

from glidemq_async.errors import GlideMQError
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


# -- steps ----------------------------------------------------------------------------------------------------------

MANY = 1_500
SILENT_MS = 3_600_000
LONG_INFO = msgpack.packb({"host": "x" * 4_000})


async def many_workers(queue: AnyQueue, store: RunningStore) -> list[str]:
    """Register more workers than one step lists, all in the same millisecond. Return their names."""
    base, now = f"glide:{{{queue.name}}}", int(cast("list[bytes]", await store.ask("TIME"))[0]) * 1_000
    names = [f"worker {number:04}" for number in range(MANY)]
    for start in range(0, MANY, 500):
        some = names[start : start + 500]
        await store.ask("ZADD", f"{base}:alive", *[word for name in some for word in (now, name)])
        await store.ask("HSET", f"{base}:workers", *[word for name in some for word in (name, LONG_INFO)])
    return names


async def forget(queue: AnyQueue, store: RunningStore) -> None:
    await store.ask("DEL", f"glide:{{{queue.name}}}:alive", f"glide:{{{queue.name}}}:workers")


async def step(queue: AnyQueue, *cursor: str) -> tuple[str, list[str]]:
    """Call `listWorkers` once. Return the next cursor and the names."""
    caller = queue._client.functions.caller  # pyright: ignore[reportPrivateUsage]
    found = cast("tuple[bytes, list[list[Any]]]", await caller.read("listWorkers", [SILENT_MS, *cursor]))
    return found[0].decode(), [row[0].decode() for row in found[1]]


async def test_more_workers_than_one_step_lists(queue: AnyQueue, store: RunningStore) -> None:
    names = await many_workers(queue, store)
    fake_worker = FakeWorker(queue, store)
    await queue.add_bulk([("n", number) for number in range(3)])
    await fake_worker.claim(3)
    await fake_worker.renew()
    found = await queue.get_workers()
    assert sorted(info.name for info in found) == sorted([*names, fake_worker.name])
    assert {info.name: info.running for info in found if info.running} == {fake_worker.name: 3}
    await fake_worker.leave()
    await forget(queue, store)


@pytest.mark.parametrize("change", ["renews", "leaves"])
async def test_steps_miss_no_worker_while_workers_renew_and_leave(
    queue: AnyQueue, store: RunningStore, change: str
) -> None:
    names, alive = await many_workers(queue, store), f"glide:{{{queue.name}}}:alive"
    cursor, found = await step(queue, "")
    met, steps = set(found), 1
    while cursor:
        # The step ended with this worker, so the next step does not find it in its place.
        last, first = found[-1], found[0]
        for name in (last, first):
            words = ("ZREM", alive, name) if change == "leaves" else ("ZINCRBY", alive, 1_000, name)
            if steps < 4:
                await store.ask(*words)
        cursor, found = await step(queue, cursor)
        met, steps = met | set(found), steps + 1
    assert met == set(names)
    assert steps > 4
    await forget(queue, store)


async def test_a_client_without_a_cursor_gets_up_to_1_000_workers(queue: AnyQueue, store: RunningStore) -> None:
    names = await many_workers(queue, store)
    caller = queue._client.functions.caller  # pyright: ignore[reportPrivateUsage]
    rows = cast("list[tuple[bytes, int, bytes, int]]", await caller.read("listWorkers", [SILENT_MS]))
    assert [row[0].decode() for row in rows] == names[:1_000]
    assert {row[2:] for row in map(tuple, rows)} == {(LONG_INFO, 0)}
    await forget(queue, store)


async def test_an_unknown_cursor_of_workers_is_refused(queue: AnyQueue) -> None:
    with pytest.raises(GlideMQError, match="unknown cursor x"):
        await step(queue, "x")
