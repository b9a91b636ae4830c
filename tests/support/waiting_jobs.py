"""Waiting jobs of every kind, added by calls of the functions; and waits for idle workers, clients and readers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgpack

from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from tests.support.helpers import PATIENCE, AnyQueue, until
from tests.support.stores import RunningStore

EVERY_KIND: dict[str, dict[str, object]] = {
    "plain": {},
    "with a time to live": {"ttl": 60_000},
    "prioritized": {"priority": 3},
    "lifo": {"lifo": True},
    "keyed": {"key": "k"},
    "deduplicated": {"dedup": {"id": "d", "mode": "simple"}},
}


async def add_kind(queue: AnyQueue, count: int = 1, **extra: object) -> list[str]:
    """Add jobs with these options of the store; return their ids."""
    functions = Functions(queue.storage, f"glide:{{{queue.name}}}")
    packed = msgpack.packb(extra) if extra else b""
    ids: list[str] = []
    for start in range(0, count, 500):
        some = min(500, count - start)
        ids += (await functions.add.jobs([AddRequest("", "n", b"\xc0", b"", packed)] * some)).ids
    return ids


async def idle_workers(queue: AnyQueue, store: RunningStore, number: int) -> None:
    """Wait until this many workers are registered as idle."""
    async with asyncio.timeout(PATIENCE):
        while await store.ask("ZCARD", f"glide:{{{queue.name}}}:idle") != number:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def waited_for(queue: AnyQueue, store: RunningStore, number: int) -> None:
    """Wait until clients wait for the results of this many jobs."""
    async with asyncio.timeout(PATIENCE):
        while cast("int", await store.ask("HLEN", f"glide:{{{queue.name}}}:waiters")) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def waits_for_results(queue: AnyQueue, number: int = 1) -> None:
    """Wait until this client waits for results this many times, and the server knows of each wait."""
    await until(lambda: _waits(queue) >= number)


def _waits(queue: Any) -> int:
    results = queue._client.results
    waiters = [waiter for some in results._waiters.values() for waiter in some]
    waiting: int = sum(waiter._turn is not None and waiter._turn.is_waiting for waiter in waiters)
    return waiting + sum(all(collection._open.values()) for collection in results.collections)


async def waits_for_events(store: RunningStore, number: int = 1) -> None:
    """Wait until this many readers of events are blocked on the server. Such a reader misses no event."""
    async with asyncio.timeout(PATIENCE):
        while await _blocked_reads(store) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def _blocked_reads(store: RunningStore) -> int:
    found = 0
    for clients in await store.command("CLIENT", "LIST"):
        assert isinstance(clients, bytes), clients
        for line in clients.decode().splitlines():
            words = line.split()
            flags = next(word.removeprefix("flags=") for word in words if word.startswith("flags="))
            found += "cmd=xread" in words and "b" in flags
    return found
