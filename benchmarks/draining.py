"""The rate at which one worker process empties a full queue, and the cost of a job's whole life."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from glidemq_async import Job, Queue, Worker
from glidemq_async.executors.protocol import Handler

from .adding import OptionsOf, add_concurrently
from .bench import QUEUE, RESULT, Bench, expect, fill, open_queue
from .meter import CostMeter, Metrics, Rows

CONCURRENCY: Final = 100

Prepare: TypeAlias = Callable[[Queue[Any, Any]], Awaitable[None]]
"""Preparations before the first job is added."""


async def _drain(bench: Bench, queue: Queue[Any, Any], handler: Handler, concurrency: int) -> CostMeter:
    errors: list[Exception] = []
    worker = Worker[Any, Any](QUEUE, handler, queue.storage, concurrency=concurrency, handle_signals=False)
    worker.on("error", errors.append)
    async with CostMeter(bench.wire) as meter:
        await worker.start()
        await worker.until_empty()
    await worker.close()
    if errors:
        raise RuntimeError(f"the worker met {len(errors)} errors, the run is void") from errors[0]
    expect("drain", await queue.count(), 0)
    return meter


async def _drain_row(bench: Bench, jobs: int, concurrency: int) -> Rows:
    runs = 0

    async def handler(_job: Job[Any, Any]) -> None:
        nonlocal runs
        runs += 1

    async with open_queue(bench) as queue:
        await fill(queue, jobs)
        meter = await _drain(bench, queue, handler, concurrency)
    row = f"drain, concurrency {concurrency}"
    expect(row, runs, jobs)
    return {row: meter.metrics(jobs)}


async def drain_1(bench: Bench, jobs: int) -> Rows:
    """Drain one job at a time."""
    return await _drain_row(bench, jobs, 1)


async def drain_10(bench: Bench, jobs: int) -> Rows:
    """Drain ten at a time."""
    return await _drain_row(bench, jobs, 10)


async def drain_100(bench: Bench, jobs: int) -> Rows:
    """Drain a hundred at a time."""
    return await _drain_row(bench, jobs, CONCURRENCY)


async def live(
    bench: Bench, jobs: int, suffix: str = "", options_of: OptionsOf | None = None, prepare: Prepare | None = None
) -> Rows:
    """Add by a hundred callers, then claim and complete at concurrency 100, with events and kept results.

    The first part calls only addJob, and the second one only settleAndClaim (except one sweep per second). So the
    parts show the cost of each function.
    """
    jobs -= jobs % CONCURRENCY

    async def handler(_job: Job[Any, Any]) -> object:
        return RESULT

    async with open_queue(bench) as queue:
        if prepare is not None:
            await prepare(queue)
        async with CostMeter(bench.wire) as adding:
            await add_concurrently(queue, jobs, CONCURRENCY, options_of)
        working = await _drain(bench, queue, handler, CONCURRENCY)
    meters = {"addJob": adding, "settleAndClaim": working}
    parts = {f"  {part}{suffix}": meter.metrics(jobs) for part, meter in meters.items()}
    inner = {f"  in {part}{suffix}": meter.inner(jobs) for part, meter in meters.items()}
    return {f"whole life{suffix}": together(*parts.values())} | parts | inner


async def whole_life(bench: Bench, jobs: int) -> Rows:
    """Measure the life of plain jobs."""
    return await live(bench, jobs)


def together(*parts: Metrics) -> Metrics:
    """Return the figures of parts that run one after the other."""
    summed = {name: sum(part[name] for part in parts) for name in ("client_us", "command_us", "server_us", "calls")}
    return summed | {"rate": 1 / sum(1 / part["rate"] for part in parts)}
