"""Ids that are used again, and custom ids that look like generated ones."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from glidemq_async import JobOptions, Queue
from glidemq_async.storage import Endpoint, MemoryStorage
from tests.support.helpers import AnyQueue, echo, soon, worker_of
from tests.support.hooked_storage import HookedStorage
from tests.support.stores import RunningStore


class HoldingBack(HookedStorage):
    """Holds the replies to adds until the test releases them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.hand_over = asyncio.Event()
        self.hand_over.set()
        self.replies: asyncio.Queue[bytes] = asyncio.Queue()

    async def after_call(self, function: str, reply: object) -> None:
        if function == "addJob":
            await self.hand_over.wait()

    def deliver(self, message: bytes, on_message: Callable[[bytes], None]) -> None:
        on_message(message)
        self.replies.put_nowait(message)


@asynccontextmanager
async def both_ends(concurrency: int = 1) -> AsyncGenerator[tuple[HoldingBack, AnyQueue, AnyQueue]]:
    """A storage that delays replies, a queue on it, and the same queue on another storage, with a worker."""
    async with (
        MemoryStorage("shared") as plain,
        HoldingBack("shared") as storage,
        Queue[Any, Any]("q", storage) as queue,
        Queue[Any, Any]("q", plain) as watcher,
        worker_of(watcher, echo, concurrency=concurrency),
    ):
        yield storage, queue, watcher


@pytest.mark.parametrize("answered", [False, True], ids=["its add is still in flight", "its add was answered"])
async def test_the_result_of_an_abandoned_wait_reaches_no_later_one(answered: bool) -> None:
    async with both_ends() as (storage, queue, watcher):
        for round_number in range(3):
            storage.hand_over.clear()
            waiting = asyncio.create_task(queue.add_and_wait("n", "old", job_id="same"))
            # The job has ended and its result is there before the reply of the add.
            assert b"old" in await soon(storage.replies.get())
            if answered:
                storage.hand_over.set()
            waiting.cancel()
            await asyncio.wait([waiting])
            storage.hand_over.set()
            await watcher.remove("same")
            new = f"new {round_number}"
            assert await queue.add_and_wait("n", new, job_id="same", wait_timeout=5) == new
            await watcher.remove("same")
            while not storage.replies.empty():
                storage.replies.get_nowait()


async def test_results_without_a_waiting_client_are_not_stored() -> None:
    async with both_ends(20) as (storage, queue, _):
        storage.hand_over.clear()
        waiting = [asyncio.create_task(queue.add_and_wait("n", number)) for number in range(50)]
        await soon(storage.replies.get())
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        storage.hand_over.set()
        assert await queue.add_and_wait("n", "last", wait_timeout=5) == "last"
        # There is no public way to observe this memory.
        listener: Any = queue._client.results  # pyright: ignore[reportPrivateUsage]
        assert (len(listener._early), len(listener._waiters)) == (0, 0)


async def commands(storage: MemoryStorage) -> int:
    """Return how many commands the server has executed, including commands inside functions."""
    store = RunningStore("memory", storage.url, (Endpoint(path=storage.socket),))
    stats = await store.ask("INFO", "commandstats")
    assert isinstance(stats, bytes)
    return sum(int(calls) for calls in re.findall(r":calls=(\d+)", stats.decode()))


async def test_a_generated_id_skips_many_custom_ones() -> None:
    """Count the commands instead of the time: one call blocks the whole server during its search."""
    own = 10_000
    async with MemoryStorage() as storage, Queue[Any, Any]("q", storage) as queue:
        await queue.add_bulk([("n", 0, JobOptions(job_id=str(number))) for number in range(1, own + 1)])
        ids: set[str] = set()
        for _ in range(3):
            before = await commands(storage)
            job = await queue.add("n", 1)
            assert await commands(storage) - before < own / 3
            assert job.outcome == "added"
            ids.add(job.id)
        assert len(ids) == 3
        assert (await queue.get_job_counts())["waiting"] == own + 3
