"""Latencies on idle queues: the queue and the bare loop take turns in one process, with a worker process each."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from benchmarks.bench import PAYLOAD, Bench, expect, idle_process, open_queue, worker_process
from benchmarks.lean.loop import REPLIES, STREAM, create_group, entries_of, entry, loop_client
from benchmarks.meter import Rows, latency_metrics
from benchmarks.waiting import PAUSE

LOOP_WORKER: Final = "benchmarks.lean.loop_worker"


async def idle_and_loop(bench: Bench, jobs: int) -> Rows:
    """Add one job at a time, in turns to an idle worker and to an idle bare loop."""
    ours: dict[str, float] = {}
    loops: dict[str, float] = {}
    async with loop_client(bench.url) as client, open_queue(bench) as queue:
        await create_group(client)
        async with worker_process(bench) as worker, idle_process(LOOP_WORKER, bench.url) as loop_worker:
            for _ in range(jobs):
                await asyncio.sleep(PAUSE)
                called = time.time()
                ours[(await queue.add("job", PAYLOAD)).id] = called
                await asyncio.sleep(PAUSE)
                called = time.time()
                loops[(await client.xadd(STREAM, entry())).decode()] = called
            await asyncio.sleep(0.5)
            starts, loop_starts = await worker.finish(), await loop_worker.finish()
    expect("idle", len(starts), jobs)
    expect("loop, idle", len(loop_starts), jobs)
    return {
        "idle: add -> handler": latency_metrics([starts[job] - called for job, called in ours.items()]),
        "loop, idle: XADD -> handler": latency_metrics([loop_starts[job] - called for job, called in loops.items()]),
    }


async def reply_and_loop(bench: Bench, jobs: int) -> Rows:
    """Make one request after the other, in turns to a worker and over two hops of the bare loop."""
    ours: list[float] = []
    loops: list[float] = []
    async with loop_client(bench.url) as client, open_queue(bench) as queue:
        await create_group(client)
        async with worker_process(bench), idle_process(LOOP_WORKER, bench.url):
            await queue.add_and_wait("job", PAYLOAD, wait_timeout=10)
            last = b"0"
            for _ in range(jobs):
                started = time.perf_counter()
                await queue.add_and_wait("job", PAYLOAD, wait_timeout=10)
                ours.append(time.perf_counter() - started)
                started = time.perf_counter()
                await client.xadd(STREAM, entry() | {b"r": b""})
                replies = await client.xread({REPLIES: last}, block=10_000)
                loops.append(time.perf_counter() - started)
                last = entries_of(replies)[-1][0]
    return {"request/reply": latency_metrics(ours), "loop, two hops": latency_metrics(loops)}
