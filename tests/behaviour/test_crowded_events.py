"""The event stream stays within its bounds for every kind of writer."""

from __future__ import annotations

from typing import Any

from glidemq_async import EventGap, Queue, QueueEvents
from glidemq_async.storage import Endpoint, MemoryStorage
from tests.support.stores import RunningStore


async def test_events_are_capped_by_bytes_and_the_loss_is_reported() -> None:
    async with MemoryStorage() as storage, Queue[Any, Any]("q", storage) as queue:
        store = RunningStore("memory", storage.url, (Endpoint(path=storage.socket),))
        async with QueueEvents("q", storage) as events:
            start = events.position
        for _ in range(9):
            await queue.add_bulk([("n" * 500, None)] * 5_000)
        size = await store.ask("MEMORY", "USAGE", "glide:{q}:events", "SAMPLES", 0)
        assert isinstance(size, int)
        assert size < 22_000_000  # 22.5 MB of names were written
        async with QueueEvents("q", storage, after=start) as events:
            async for gap in events:
                assert isinstance(gap, EventGap)
                assert gap.missed is not None
                assert 5_000 < gap.missed < 30_000
                break
        assert await queue.check() == []


async def test_updates_are_trimmed_like_all_events() -> None:
    async with MemoryStorage() as storage, Queue[Any, Any]("q", storage) as queue:
        store = RunningStore("memory", storage.url, (Endpoint(path=storage.socket),))
        job = await queue.add("n")
        for number in range(1_000):
            await job.update_progress(number)
        # Pretend that half as many events as are kept were written since.
        await store.ask("HSET", "glide:{q}:meta2", "events", 150_000)
        for number in range(1_024):
            await job.update_progress(number)
        length = await store.ask("XLEN", "glide:{q}:events")
        assert isinstance(length, int)
        assert length < 1_900  # a third of the events of the check is gone
