"""However many jobs are removed or restarted, no single step blocks the server's other clients for long."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from glidemq_async import Queue
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Arg, RequestChannel
from glidemq_async.functions.outcomes import Failed, Retention
from tests.support.fake_worker import SettledRun, with_runs
from tests.support.machine_speed import slowness
from tests.support.recording_storage import Relay
from tests.support.stores import RunningStore
from tests.support.waiting_jobs import add_kind

LONGEST_MS = 10
BATCH = 500
TRIES = 3
SIZES = [8_000, pytest.param(100_000, marks=pytest.mark.slow)]
AnyQueue = Queue[Any, Any]


class Meter:
    """The server's processor time of each call. On a busy machine calls take longer, but not more processor time."""

    def __init__(self, relay: Relay, store: RunningStore) -> None:
        self._store = store
        self._before = 0.0
        self.calls: list[tuple[float, str]] = []
        relay.before_call, relay.after_call = self._begin, self._end

    async def _begin(self, _function: str, _args: Sequence[Arg]) -> None:
        self._before = await self._seconds()

    async def _end(self, function: str, _args: Sequence[Arg], _reply: object) -> None:
        self.calls.append(((await self._seconds() - self._before) * 1000, function))

    async def _seconds(self) -> float:
        text = cast("bytes", await self._store.ask("INFO", "cpu")).decode()
        return sum(map(float, re.findall(r"used_cpu_(?:user|sys)_main_thread:([\d.]+)", text)))


async def end_all(queue: AnyQueue) -> None:
    """Run every job to its failure, and keep them all."""
    functions, channel = Functions(queue.storage, f"glide:{{{queue.name}}}"), RequestChannel("ender")
    settled: list[SettledRun] = []
    unsettled: list[SettledRun] = []
    while True:
        request = functions.settle.request(channel, "ender", BATCH - len(unsettled), 30_000, subscribed=False)
        reply = await functions.settle.send(with_runs(request, settled))
        failed = Failed(b"\xc0", "retries_exhausted", "broken", Retention())
        unsettled = settled[reply.settled :]
        settled = unsettled + [SettledRun(job.id, job.entry, failed) for job in reply.jobs]
        if not settled:
            break
    await functions.stalled.close_worker("ender")


async def short_steps(work: Callable[[], Awaitable[Meter]], least: int = 1) -> None:
    """Repeat the work while a call is slow. A step without a bound is slow each time, but a busy host is not."""
    for left in reversed(range(TRIES)):
        meter = await work()
        assert len(meter.calls) >= least, "the work must take several steps"
        found = sorted(meter.calls)[-5:]
        if found[-1][0] < LONGEST_MS * slowness():
            return
        assert left, found


@asynccontextmanager
async def metered(queue: AnyQueue, store: RunningStore) -> AsyncGenerator[tuple[AnyQueue, Meter]]:
    """The same queue, with a meter on its calls."""
    relay = Relay(queue.storage)
    async with AnyQueue(queue.name, relay) as watched:
        yield watched, Meter(relay, store)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("size", SIZES)
async def test_draining_many_jobs_takes_short_steps(queue: AnyQueue, store: RunningStore, size: int) -> None:
    async def drain() -> Meter:
        await add_kind(queue, size * 6 // 10)
        await add_kind(queue, size * 2 // 10, delay=60_000)
        await add_kind(queue, size // 10, priority=1)
        await add_kind(queue, size // 10, key="k")
        async with metered(queue, store) as (watched, meter):
            assert await watched.drain(delayed=True) == size
        return meter

    await short_steps(drain, size // 500)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("size", SIZES)
async def test_cleaning_retrying_and_obliterating_many_jobs_take_short_steps(
    queue: AnyQueue, store: RunningStore, size: int
) -> None:
    async def clear() -> Meter:
        await add_kind(queue, size)
        await end_all(queue)
        async with metered(queue, store) as (watched, meter):
            assert len(await watched.clean(0, size // 2, "failed")) == size // 2
            assert await watched.retry_jobs() == size // 2
            assert await watched.obliterate() == size // 2
        return meter

    await short_steps(clear, size // 400)


async def test_large_payloads_make_short_steps(queue: AnyQueue, store: RunningStore) -> None:
    async def drain() -> Meter:
        await queue.add_bulk([("n", b"x" * 500_000) for _ in range(100)])
        await asyncio.sleep(0.5)  # the server frees the memory of the adds at its own time
        async with metered(queue, store) as (watched, meter):
            assert await watched.drain() == 100
        return meter

    await short_steps(drain)
