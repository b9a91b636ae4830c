"""Suspended jobs and runs: the memory that each takes, the idle server, and the time from a signal to the next run."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, Final

from benchmarks.meter import percentile
from benchmarks.server import ServerCost, connected, used_bytes
from benchmarks.workflows.figures import Figure
from glidemq_async import GlideMQ, Job, Queue, Worker, workflows

QUEUE: Final = "suspended"
WAKES: Final = 500
PAUSE: Final = 3.0
BULK: Final = 10_000


async def measure(url: str, jobs: int, runs: int) -> list[Figure]:
    """Return the figures of this many suspended jobs, and of this many suspended runs of a workflow."""
    return [*await _jobs(url, jobs), await _runs(url, runs)]


async def _jobs(url: str, number: int) -> list[Figure]:
    woken: dict[str, asyncio.Future[float]] = {}

    async def handler(job: Job[Any, Any]) -> None:
        if job.resumed_by == "signal":
            woken[job.id].set_result(time.perf_counter())
            return
        await job.suspend("waits for the bank", signals=["paid"])

    async with connected(url) as wire, Queue[Any, Any](QUEUE, url) as queue:
        await queue.obliterate(force=True)
        before = await used_bytes(wire)
        worker = Worker(QUEUE, handler, url, concurrency=200, handle_signals=False)
        async with worker:
            for first in range(0, number, BULK):
                await queue.add_bulk([("n", None)] * min(BULK, number - first))
            while (await queue.get_job_counts())["suspended"] < number:  # noqa: ASYNC110 - it may take minutes
                await asyncio.sleep(0.5)
            each = (await used_bytes(wire) - before) / number
            asleep = await _cost_of_sleep(wire)
            latencies: list[float] = []
            for one in random.Random(1).sample(range(1, number + 1), min(WAKES, number)):
                end = woken[str(one)] = asyncio.get_running_loop().create_future()
                began = time.perf_counter()
                await queue.signal(str(one), "paid")
                latencies.append((await end - began) * 1e3)
        await queue.obliterate(force=True)
    return [
        Figure(f"memory of a suspended job, {number:,} of them", each, "bytes", most=1024),
        Figure("processor time of the server while they sleep", asleep, "% of a core", most=1.0),
        Figure(f"from a signal to the next run, one of {number:,}, p50", percentile(latencies, 50), "ms"),
        Figure(f"from a signal to the next run, one of {number:,}, p99", percentile(latencies, 99), "ms", most=10),
    ]


async def _cost_of_sleep(wire: Any) -> float:
    before = await ServerCost.read(wire)
    await asyncio.sleep(PAUSE)
    return (await ServerCost.read(wire)).since(before).processor / PAUSE * 100


async def _runs(url: str, number: int) -> Figure:
    mq: GlideMQ[Any] = GlideMQ(url, queue=QUEUE)

    @mq.workflow
    async def wait() -> None:
        await workflows.receive("paid", timeout="3d")

    async with connected(url) as wire, mq:
        queue = mq.queue(QUEUE)
        before = await used_bytes(wire)
        async with mq.worker(concurrency=2_000):
            for first in range(0, number, BULK):
                await wait.task.add_many([()] * min(BULK, number - first))
            while (await queue.get_job_counts())["suspended"] < number:  # noqa: ASYNC110 - it may take minutes
                await asyncio.sleep(0.5)
            each = (await used_bytes(wire) - before) / number
        await queue.obliterate(force=True)
    return Figure(f"memory of a suspended run with a timeout, {number:,} of them", each, "bytes", most=1024)
