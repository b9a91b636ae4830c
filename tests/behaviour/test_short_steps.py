"""However many jobs are removed or started anew, no single step keeps the server from its other callers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, cast

import pytest

from glidemq_async import Queue
from glidemq_async.functions.callers import Arg, Functions, Lane
from glidemq_async.storage import Storage
from tests.kinds import add_kind
from tests.places import Place
from tests.relay import Relay

LONGEST_MS = 10
BATCH = 500
AnyQueue = Queue[Any, Any]


class Meter:
    """The server's processor time of each call: a busy machine makes calls longer, and not more work."""

    def __init__(self, relay: Relay, place: Place) -> None:
        self._place = place
        self._before = 0.0
        self.calls: list[tuple[float, str]] = []
        relay.before_call, relay.after_call = self._begin, self._end

    async def _begin(self, _function: str, _args: Sequence[Arg]) -> None:
        self._before = await self._seconds()

    async def _end(self, function: str, _args: Sequence[Arg], _reply: object) -> None:
        self.calls.append(((await self._seconds() - self._before) * 1000, function))

    async def _seconds(self) -> float:
        text = cast("bytes", await self._place.ask("INFO", "cpu")).decode()
        return sum(map(float, re.findall(r"used_cpu_(?:user|sys)_main_thread:([\d.]+)", text)))


async def end_all(queue: AnyQueue) -> None:
    """Run every job to its failure, and keep them all."""
    functions, lane = Functions(queue.storage, f"glide:{{{queue.name}}}"), Lane("ender")
    settled: list[Arg] = []
    while True:
        reply = await functions.settle_and_claim(
            functions.settle_request(lane, "ender", BATCH, 30_000, "u", len(settled) // 5, settled)
        )
        settled = []
        for job in reply.jobs:
            settled += ["f", job[4] or b"", job[5] or b"", b"\xc0", "-1 -1;retries_exhausted;broken"]
        if not settled:
            break
    await functions.close_worker("ender")


def check(meter: Meter, least: int) -> None:
    assert len(meter.calls) >= least, "the work was done in steps"
    assert max(meter.calls)[0] < LONGEST_MS, sorted(meter.calls)[-5:]


@pytest.mark.timeout(240)
async def test_draining_100_000_jobs(queue: AnyQueue, storage: Storage, place: Place) -> None:
    await add_kind(queue, 60_000)
    await add_kind(queue, 20_000, delay=60_000)
    await add_kind(queue, 10_000, priority=1)
    await add_kind(queue, 10_000, key="k")
    relay = Relay(storage)
    async with AnyQueue(queue.name, relay) as watched:
        meter = Meter(relay, place)
        assert await watched.drain(delayed=True) == 100_000
    check(meter, 200)


@pytest.mark.timeout(240)
async def test_cleaning_retrying_and_obliterating_100_000_jobs(queue: AnyQueue, storage: Storage, place: Place) -> None:
    await add_kind(queue, 100_000)
    await end_all(queue)
    relay = Relay(storage)
    async with AnyQueue(queue.name, relay) as watched:
        meter = Meter(relay, place)
        assert len(await watched.clean(0, 50_000, "failed")) == 50_000
        assert await watched.retry_jobs() == 50_000
        assert await watched.obliterate() == 50_000
    check(meter, 300)


async def test_large_payloads_make_short_steps(queue: AnyQueue, storage: Storage, place: Place) -> None:
    await queue.add_bulk([("n", b"x" * 500_000) for _ in range(100)])
    await asyncio.sleep(0.5)  # the server lets go of what the adds needed, in its own time
    relay = Relay(storage)
    async with AnyQueue(queue.name, relay) as watched:
        meter = Meter(relay, place)
        assert await watched.drain() == 100
    assert max(meter.calls)[0] < LONGEST_MS, sorted(meter.calls)[-5:]
