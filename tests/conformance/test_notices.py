"""Notices: an add that may be pushed wakes the process of its worker before it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from glidemq_async import Queue, SerializationError
from glidemq_async.storage import Storage
from tests.support.helpers import AnyQueue, echo, idle, worker_of
from tests.support.idle_worker import IdleWorker, leases_in
from tests.support.recording_storage import Relay
from tests.support.stores import RunningStore

everywhere = pytest.mark.everywhere
NOTICE = "giveNotice"


@pytest.fixture
async def workers(queue: AnyQueue, store: RunningStore) -> AsyncGenerator[tuple[IdleWorker, IdleWorker]]:
    """Two workers that listen and have not called yet."""
    await queue.connect()
    first, second = IdleWorker(queue, store), IdleWorker(queue, store)
    async with first.listening(), second.listening():
        yield first, second
    await first.leave()
    await second.leave()


class Noticing(Relay):
    """A storage that records the notices and adds of its clients in `calls`, and gives no notice."""

    def sends_at_once(self, key: str) -> bool:
        return True

    def call_after_silence(self, function: str, key: str) -> None:
        self.calls.append(function)

    def notices_and_adds(self) -> list[str]:
        return [call for call in self.calls if call in {NOTICE, "addPlain", "addJob"}]


@everywhere
async def test_a_notice_goes_to_the_worker_that_gets_the_next_job(
    queue: AnyQueue, workers: tuple[IdleWorker, IdleWorker]
) -> None:
    few, many = workers
    await few.wait(slots=1)
    await many.wait(slots=2)
    await queue.storage.call(NOTICE, many.base, ())
    assert await many.message() is None
    await queue.add("n", 1)
    [lease] = leases_in(await many.pushed())
    await queue.storage.call(NOTICE, many.base, ())
    assert await few.message() is None
    assert (await many.complete(lease)).refused == {}
    assert await queue.check() == []


async def test_a_notice_without_an_idle_worker_has_no_effect(queue: AnyQueue, workers: tuple[IdleWorker, ...]) -> None:
    assert await queue.storage.call(NOTICE, workers[0].base, ()) == 0
    assert await queue.check() == []


@everywhere
async def test_an_add_after_a_pushed_one_gives_a_notice_first(storage: Storage, name: str) -> None:
    relay = Noticing(storage)
    async with Queue[Any, Any](name, relay) as queue:
        await queue.add("n", 0)
        async with worker_of(queue, echo, concurrency=2) as worker:
            for number in range(2):
                await idle(worker)
                assert await (await queue.add("n", number)).result(5) == number
            await idle(worker)
            assert await queue.add_and_wait("n", 2, wait_timeout=5) == 2
        await queue.add("n", 3)
        await queue.add("n", 4)
    assert relay.notices_and_adds() == [
        "addPlain", "addPlain", NOTICE, "addPlain", NOTICE, "addJob", NOTICE, "addPlain", "addPlain",
    ]  # fmt: skip


async def test_adds_that_share_a_call_give_one_notice(storage: Storage, name: str) -> None:
    relay = Noticing(storage)
    async with Queue[Any, Any](name, relay) as queue, worker_of(queue, echo, concurrency=2) as worker:
        await idle(worker)
        await (await queue.add("n", 0)).result(5)
        for _ in range(2):
            await asyncio.gather(*(queue.add("n", number) for number in range(10)))
    assert relay.calls.count(NOTICE) == 1


async def test_an_add_that_is_refused_after_its_notice_leaves_the_connection_usable(
    storage: Storage, name: str
) -> None:
    async with Queue[Any, Any](name, storage) as queue, worker_of(queue, echo, concurrency=2) as worker:
        await idle(worker)
        await (await queue.add("n", 0)).result(5)
        await idle(worker)
        with pytest.raises(SerializationError):
            await queue.add("n", object())
        assert await (await queue.add("n", 1)).result(5) == 1
