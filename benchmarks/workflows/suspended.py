"""Suspended jobs and runs: the memory that each takes, the idle server, and the time from a signal to the next run."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, Final

from benchmarks.meter import percentile
from benchmarks.server import ServerCost, connected, used_bytes
from benchmarks.workflows.figures import Figure
from glidemq_async import GlideMQ, Job, Queue, Worker, current_job, workflows

QUEUE: Final = "suspended"
WAKES: Final = 500
PAUSE: Final = 3.0
BULK: Final = 10_000


async def measure(url: str, jobs: int, runs: int) -> list[Figure]:
    """Return the figures of this many suspended jobs, and of this many suspended runs of a workflow."""
    return [*await _jobs(url, jobs), *await _runs(url, runs)]


class _Woken:
    """The instants at which jobs have continued after a signal."""

    def __init__(self) -> None:
        self._ends: dict[str, asyncio.Future[float]] = {}

    def note(self, job_id: str) -> None:
        """Note that a job continues. Call it in the job."""
        self._ends.pop(job_id).set_result(time.perf_counter())

    async def latencies(self, queue: Queue[Any, Any], number: int) -> list[float]:
        """Signal some of the jobs, one after another. Return the milliseconds until each of them has continued."""
        taken: list[float] = []
        for one in random.Random(1).sample(range(1, number + 1), min(WAKES, number)):
            end = self._ends[str(one)] = asyncio.get_running_loop().create_future()
            began = time.perf_counter()
            await queue.signal(str(one), "paid")
            taken.append((await end - began) * 1e3)
        return taken


async def _until_suspended(queue: Queue[Any, Any], number: int) -> None:
    while (await queue.get_job_counts())["suspended"] < number:  # noqa: ASYNC110 - it may take minutes
        await asyncio.sleep(0.5)


async def _jobs(url: str, number: int) -> list[Figure]:
    woken = _Woken()

    async def handler(job: Job[Any, Any]) -> None:
        if job.resumed_by == "signal":
            woken.note(job.id)
            return
        await job.suspend("waits for the bank", signals=["paid"])

    async with connected(url) as wire, Queue[Any, Any](QUEUE, url) as queue:
        await queue.obliterate(force=True)
        before = await used_bytes(wire)
        async with Worker(QUEUE, handler, url, concurrency=200, handle_signals=False):
            for first in range(0, number, BULK):
                await queue.add_bulk([("n", None)] * min(BULK, number - first))
            await _until_suspended(queue, number)
            each = (await used_bytes(wire) - before) / number
            latencies = await woken.latencies(queue, number)
        await queue.obliterate(force=True)
    return [
        Figure(f"memory of a suspended job, {number:,} of them", each, "bytes", most=1024),
        Figure(f"from a signal to the next run, one of {number:,} jobs, p99", percentile(latencies, 99), "ms", most=10),
    ]


async def _cost_of_sleep(wire: Any) -> float:
    before = await ServerCost.read(wire)
    await asyncio.sleep(PAUSE)
    return (await ServerCost.read(wire)).since(before).processor / PAUSE * 100


async def _runs(url: str, number: int) -> list[Figure]:
    mq: GlideMQ[Any] = GlideMQ(url, queue=QUEUE)
    woken = _Woken()

    @mq.workflow
    async def wait() -> None:
        await workflows.receive("paid", timeout="3d")
        woken.note(current_job().id)

    async with connected(url) as wire, mq:
        queue = mq.queue(QUEUE)
        before, began = await used_bytes(wire), time.perf_counter()
        async with mq.worker(concurrency=2_000):
            for first in range(0, number, BULK):
                await wait.task.add_many([()] * min(BULK, number - first))
            await _until_suspended(queue, number)
            seconds = time.perf_counter() - began
            each = (await used_bytes(wire) - before) / number
            asleep = await _cost_of_sleep(wire)
            latencies = await woken.latencies(queue, number)
        await queue.obliterate(force=True)
    some = f"one of {number:,} runs"
    return [
        Figure(f"memory of a suspended run with a timeout, {number:,} of them", each, "bytes", most=1024),
        Figure("time until all of them were suspended, in one worker process", seconds, "s"),
        Figure("processor time of the server while they sleep", asleep, "% of a core", most=1.0),
        Figure(f"from a signal to the line after `receive`, {some}, p50", percentile(latencies, 50), "ms"),
        Figure(f"from a signal to the line after `receive`, {some}, p99", percentile(latencies, 99), "ms", most=10),
    ]
