"""A worker claims fewer jobs in a call while replies take a large part of the lease, and more when they are fast."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from glidemq_async import Queue
from glidemq_async.storage import Arg, MemoryStorage
from tests.support.helpers import AnyJob, soon, worker_of
from tests.support.recording_storage import Relay

SLOTS = 3
"""The position of the number of slots among the arguments of a claim."""
CONCURRENCY = 32
JOBS = 200


async def test_slow_replies_halve_the_claims_and_fast_ones_double_them() -> None:
    asked: list[int] = []
    left = JOBS
    is_done = asyncio.Event()

    async def handler(_: AnyJob) -> None:
        nonlocal left
        left -= 1
        if not left:
            is_done.set()

    async def slow_down(function: str, args: Sequence[Arg], _: object) -> None:
        if function == "settleAndClaim" and not is_done.is_set():
            asked.append(int(args[SLOTS]))
            if len(asked) <= len(halved):
                await asyncio.sleep(0.3)  # more than a quarter of the lease

    halved = [32, 16, 8, 4, 2, 1]
    async with MemoryStorage() as storage, Queue[Any, Any]("q", Relay(storage)) as queue:
        await queue.add_bulk([("n", None)] * JOBS)
        assert isinstance(queue.storage, Relay)
        queue.storage.after_call = slow_down
        async with worker_of(queue, handler, concurrency=CONCURRENCY, lock_duration=1):
            await soon(is_done.wait())
    assert asked[: len(halved)] == halved
    assert max(asked[len(halved) :]) >= CONCURRENCY / 2
