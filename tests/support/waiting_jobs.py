"""Waiting jobs of every kind, added by calls of the functions; and waits for idle workers and waiting clients."""

from __future__ import annotations

import asyncio
from typing import cast

import msgpack

from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from tests.support.helpers import PATIENCE, AnyQueue
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
