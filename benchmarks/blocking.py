"""The rate of adding jobs from code without an event loop: `queue.sync` in one thread, in bulk, and in many threads."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from glidemq_async import Queue

from .bench import PAYLOAD, Bench, expect, open_queue
from .meter import CostMeter, Rows, latency_metrics

THREADS: Final = 50
BULK: Final = 100


async def add_sync(bench: Bench, jobs: int) -> Rows:
    """Add with `queue.sync`, in its own loop and not in the loop of the benchmark."""
    rows: Rows = {}
    for row, work, jobs_of in (
        ("add, .sync, one by one", _one_by_one, jobs),
        (f"add, .sync, {THREADS} threads", _with_threads, jobs - jobs % THREADS),
        (f"add_bulk of {BULK}, .sync", _in_bulk, jobs - jobs % BULK),
    ):
        queue = open_queue(bench)
        try:
            before = await asyncio.to_thread(_prepare, queue)
            async with CostMeter(bench.wire) as meter:
                latencies = await asyncio.to_thread(work, queue, jobs_of)
            expect(row, await asyncio.to_thread(queue.sync.count), before + jobs_of)
            rows[row] = meter.metrics(jobs_of, latencies)
        finally:
            await asyncio.to_thread(queue.sync.close)
    async with open_queue(bench) as queue:
        # The row to compare with: the same number of jobs in the same calls.
        seconds = [await _timed(queue) for _ in range(jobs // BULK)]
        rows[f"add_bulk of {BULK}"] = latency_metrics(seconds)
    return rows


async def _timed(queue: Queue[Any, Any]) -> float:
    started = time.perf_counter()
    await queue.add_bulk([("job", PAYLOAD)] * BULK)
    return time.perf_counter() - started


def _prepare(queue: Queue[Any, Any]) -> int:
    queue.sync.add("job", PAYLOAD)
    return queue.sync.count()


def _one_by_one(queue: Queue[Any, Any], jobs: int) -> list[float]:
    latencies: list[float] = []
    for _ in range(jobs):
        started = time.perf_counter()
        queue.sync.add("job", PAYLOAD)
        latencies.append(time.perf_counter() - started)
    return latencies


def _with_threads(queue: Queue[Any, Any], jobs: int) -> list[float]:
    with ThreadPoolExecutor(THREADS) as threads:
        found = [threads.submit(_one_by_one, queue, jobs // THREADS) for _ in range(THREADS)]
    return [seconds for each in found for seconds in each.result()]


def _in_bulk(queue: Queue[Any, Any], jobs: int) -> list[float]:
    latencies: list[float] = []
    for _ in range(jobs // BULK):
        started = time.perf_counter()
        queue.sync.add_bulk([("job", PAYLOAD)] * BULK)
        latencies.append(time.perf_counter() - started)
    return latencies
