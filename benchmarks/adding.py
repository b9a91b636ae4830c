"""The rate of adding jobs: one by one, by many concurrent callers, and in bulk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from glidemq_async import Queue
from glidemq_async.options.job_options import JobOptionsDict

from .bench import PAYLOAD, Bench, expect, fill, open_queue
from .meter import CostMeter, Rows
from .server import used_bytes

CALLERS: Final = 50

OptionsOf: TypeAlias = Callable[[int], JobOptionsDict]
"""Return the options of the n-th job."""


async def add_concurrently(
    queue: Queue[Any, Any], jobs: int, callers: int, options_of: OptionsOf | None = None
) -> list[float]:
    """Let concurrent callers add one job after the other; return the latencies in seconds."""
    latencies: list[float] = []

    async def caller(first: int) -> None:
        for number in range(first, jobs, callers):
            started = time.perf_counter()
            if options_of is None:
                await queue.add("job", PAYLOAD)
            else:
                await queue.add("job", PAYLOAD, **options_of(number))
            latencies.append(time.perf_counter() - started)

    await asyncio.gather(*(caller(first) for first in range(callers)))
    return latencies


async def _add(bench: Bench, row: str, jobs: int, callers: int) -> Rows:
    jobs -= jobs % callers
    async with open_queue(bench) as queue:
        await queue.add("job", PAYLOAD)
        async with CostMeter(bench.wire) as meter:
            latencies = await add_concurrently(queue, jobs, callers)
        expect(row, await queue.count(), jobs + 1)
    return {row: meter.metrics(jobs, latencies)}


async def add_one_by_one(bench: Bench, jobs: int) -> Rows:
    """Add with one caller that waits for each reply."""
    return await _add(bench, "add, one by one", jobs, 1)


async def add_with_callers(bench: Bench, jobs: int) -> Rows:
    """Add with many callers that share calls."""
    return await _add(bench, f"add, {CALLERS} callers", jobs, CALLERS)


async def add_bulk(bench: Bench, jobs: int) -> Rows:
    """Add with one `add_bulk`."""
    async with open_queue(bench) as queue:
        await queue.add("job", PAYLOAD)
        before = await used_bytes(bench.wire)
        async with CostMeter(bench.wire) as meter:
            await fill(queue, jobs)
        stored = await used_bytes(bench.wire) - before
        expect("add, bulk", await queue.count(), jobs + 1)
    return {"add, bulk": meter.metrics(jobs) | {"bytes": stored / jobs}}
