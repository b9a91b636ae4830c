"""The event stream stays within its bounds for every kind of writer."""

from __future__ import annotations

import re
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


async def _measurements(store: RunningStore) -> int:
    """Return how often the server has measured a stream."""
    [stats] = await store.command("INFO", "commandstats")
    assert isinstance(stats, bytes)
    found = re.search(rb"cmdstat_memory\|usage:calls=(\d+)", stats)
    return int(found[1]) if found else 0


async def test_a_stream_that_is_far_below_its_bound_is_measured_once() -> None:
    async with MemoryStorage() as storage, Queue[Any, Any]("q", storage) as queue:
        store = RunningStore("memory", storage.url, (Endpoint(path=storage.socket),))
        for _ in range(10):
            await queue.add_bulk([("n", None)] * 5_000)
        assert await _measurements(store) == 1


async def test_a_stream_that_another_server_has_written_to_is_measured_again() -> None:
    async with MemoryStorage() as storage, Queue[Any, Any]("q", storage) as queue:
        store = RunningStore("memory", storage.url, (Endpoint(path=storage.socket),))
        await queue.add_bulk([("n", None)] * 2_048)
        before = await _measurements(store)
        # The entries that a primary has written before a failover made this server the primary again.
        added = 20
        total = await store.ask("HINCRBY", "glide:{q}:meta2", "events", added)
        assert isinstance(total, int)
        for number in range(total - added, total):
            event = ("seq", number, "n", 1, "t", 1, "e", "added\x1f1\x1f" + "n" * 1_000_000)
            await store.ask("XADD", "glide:{q}:events", "*", *event)
        await queue.add_bulk([("n", None)] * 2_048)
        assert await _measurements(store) > before
        size = await store.ask("MEMORY", "USAGE", "glide:{q}:events", "SAMPLES", 0)
        assert isinstance(size, int)
        assert size < 18_000_000  # 20 MB are trimmed in proportion
