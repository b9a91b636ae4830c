"""Latencies on an idle queue: the start of a job and of a delayed job, and a request with its reply."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from glidemq_async import Job

from . import kinds
from .bench import PAYLOAD, QUEUE, Bench, expect, open_queue, worker_process
from .meter import CostMeter, Metrics, Rows, latency_metrics

PAUSE: Final = 0.005
DELAY: Final = 0.3
APART: Final = 0.007


async def idle_start(bench: Bench, jobs: int) -> Rows:
    """Add one job at a time to an idle worker in another process, alternating with empty function calls."""
    added: dict[str, tuple[float, float]] = {}
    round_trips: list[float] = []
    base = f"glide:{{{QUEUE}}}"
    async with open_queue(bench) as queue, worker_process(bench) as worker:
        for _ in range(jobs):
            await asyncio.sleep(PAUSE)
            started = time.perf_counter()
            await queue.storage.call("storageStamp", base, [], readonly=True)
            round_trips.append(time.perf_counter() - started)
            await asyncio.sleep(PAUSE)
            called = time.time()
            job = await queue.add("job", PAYLOAD)
            added[job.id] = (called, time.time())
            if len(added) == jobs:
                await job.result(timeout=10)
        started_at = await worker.finish()
    expect("idle start", len(started_at), jobs)
    from_call = [started_at[job_id] - called for job_id, (called, _) in added.items()]
    from_answer = [started_at[job_id] - answered for job_id, (_, answered) in added.items()]
    trip = latency_metrics(round_trips)
    return {
        "empty function call": trip,
        "idle: add -> handler": in_trips(latency_metrics(from_call), trip),
        "idle: add's answer -> handler": in_trips(latency_metrics(from_answer), trip),
    }


IDLE_KINDS: Final = {
    "plain": kinds.plain,
    "prioritized": kinds.prioritized,
    "LIFO": kinds.lifo,
    "keyed": kinds.keyed,
}


async def idle_kinds(bench: Bench, jobs: int) -> Rows:
    """Add one job at a time to an idle worker in another process, with alternating kinds."""
    called: dict[str, dict[str, float]] = {kind: {} for kind in IDLE_KINDS}
    last: Job[Any, Any] | None = None
    async with open_queue(bench) as queue, worker_process(bench) as worker:
        for number in range(jobs):
            for kind, options_of in IDLE_KINDS.items():
                await asyncio.sleep(PAUSE)
                instant = time.time()
                last = await queue.add("job", PAYLOAD, **options_of(number))
                called[kind][last.id] = instant
        assert last is not None
        await last.result(timeout=10)
        started_at = await worker.finish()
    expect("idle kinds", len(started_at), jobs * len(IDLE_KINDS))
    return {
        f"idle, {kind}: add -> handler": latency_metrics([started_at[job_id] - t for job_id, t in added.items()])
        for kind, added in called.items()
    }


def in_trips(latency: Metrics, trip: Metrics) -> Metrics:
    """Add the ratio of the medians to a round trip."""
    return latency | {"trips": latency["p50_us"] / trip["p50_us"]}


async def delayed_start(bench: Bench, jobs: int) -> Rows:
    """Add delayed jobs that become due one after the other; measure the time from each due time to the start."""
    async with open_queue(bench) as queue, worker_process(bench) as worker:
        added: list[Job[Any, Any]] = []
        due: list[float] = []
        for number in range(jobs):
            delay = DELAY + number * APART
            job = await queue.add("job", PAYLOAD, delay=delay)
            added.append(job)
            assert job.created_at is not None
            due.append(job.created_at.timestamp() + delay)
        await asyncio.sleep(max(0.0, due[-1] - time.time()) + 0.3)
        started_at = await worker.finish()
    expect("delayed start", len(started_at), jobs)
    late = [started_at[job.id] - instant for job, instant in zip(added, due, strict=True)]
    return {"delayed: due -> handler": latency_metrics(late)}


async def request_reply(bench: Bench, jobs: int) -> Rows:
    """Send one request after the other to a worker in another process."""
    latencies: list[float] = []
    async with open_queue(bench) as queue, worker_process(bench):
        await queue.add_and_wait("job", PAYLOAD, wait_timeout=10)
        async with CostMeter(bench.wire) as meter:
            for _ in range(jobs):
                started = time.perf_counter()
                await queue.add_and_wait("job", PAYLOAD, wait_timeout=10)
                latencies.append(time.perf_counter() - started)
    return {"request/reply": meter.metrics(jobs, latencies)}


async def idle_crowd(bench: Bench, workers: int, jobs: int) -> Rows:
    """Add jobs to a queue with many idle workers; measure function calls per job in addition to two: the add claims for
    a worker, and that worker settles.

    The calls of sweeps are measured in a quiet period of the same length and subtracted.
    """
    async with open_queue(bench) as queue, worker_process(bench, workers=workers, concurrency=1) as worker:
        await queue.get_job_counts()
        async with CostMeter(bench.wire) as busy:
            for _ in range(jobs):
                await queue.add("job", PAYLOAD)
                await asyncio.sleep(2 * PAUSE)
            await asyncio.sleep(0.1)
        async with CostMeter(bench.wire) as quiet:
            await asyncio.sleep(busy.seconds)
        expect("idle crowd", len(await worker.finish()), jobs)
    calls = (busy.calls - quiet.calls) / jobs
    return {f"{workers} idle workers": {"calls": calls, "extra_calls": calls - 2, "quiet_calls": quiet.calls / jobs}}
