"""The cost of a subprocess for a job: the round trip, and the start of the first and of every other process."""

from __future__ import annotations

import time
from typing import Any, Literal

from glidemq_async import Job, Worker
from glidemq_async.executors import SubprocessExecutor

from .bench import PAYLOAD, QUEUE, Bench, open_queue
from .meter import Rows, latency_metrics

WARM_UP = 20


def nothing(job: Job[Any, Any]) -> None:
    """A job that does nothing."""


async def subprocess_trip(bench: Bench, jobs: int) -> Rows:
    """Send small jobs to a warm process, one after the other; then make requests through the whole worker."""
    trips: list[float] = []
    replies: list[float] = []
    async with open_queue(bench) as queue:
        executor = SubprocessExecutor(1, max_jobs=None)
        executor.check_handler(nothing)
        await executor.start(lambda: None)
        job = await queue.add("job", PAYLOAD, delay=3_600)
        for _ in range(WARM_UP + jobs):
            began = time.perf_counter()
            await executor.run(nothing, job, None)
            trips.append(time.perf_counter() - began)
        await executor.stop(0)
        await job.remove()
        async with Worker(QUEUE, nothing, bench.url, executor=SubprocessExecutor(1, max_jobs=None)):
            for _ in range(WARM_UP + jobs):
                began = time.perf_counter()
                await queue.add_and_wait("job", PAYLOAD, wait_timeout=10)
                replies.append(time.perf_counter() - began)
    return {
        "subprocess: there and back": latency_metrics(trips[WARM_UP:]),
        "request/reply, subprocess": latency_metrics(replies[WARM_UP:]),
    }


async def subprocess_start(bench: Bench, starts: int) -> Rows:
    """Start an executor, and then one process after the other. Each one runs one job."""
    rows: Rows = {}
    async with open_queue(bench) as queue:
        job = await queue.add("job", PAYLOAD, delay=3_600)
        methods: tuple[Literal["forkserver", "spawn"], ...] = ("forkserver", "spawn")
        for method in methods:
            executor = SubprocessExecutor(1, max_jobs=1, start_method=method)
            executor.check_handler(nothing)
            began = time.perf_counter()
            await executor.start(lambda: None)
            first = time.perf_counter() - began
            await executor.run(nothing, job, None)
            found: list[float] = []
            for _ in range(starts):
                began = time.perf_counter()
                await executor.run(nothing, job, None)
                found.append(time.perf_counter() - began)
            await executor.stop(0)
            rows[f"subprocess, {method}: first start"] = latency_metrics([first])
            rows[f"subprocess, {method}: every other start"] = latency_metrics(found)
        await job.remove()
    return rows
