"""The removal of very many jobs: the processor time of the server for each step."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from glidemq_async import Queue
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import RequestChannel
from glidemq_async.functions.claimed_jobs import ClaimedJob
from glidemq_async.functions.outcomes import Completed, Retention
from glidemq_async.storage.redis.wire import as_text

from .bench import PAYLOAD, QUEUE, Bench, expect, open_queue
from .meter import Rows, latency_metrics
from .server import ask

BATCH: Final = 500
COMPLETED: Final = Completed(b"\xc0", Retention())


async def drain_steps(bench: Bench, jobs: int) -> Rows:
    """Drain a queue in which this many jobs wait."""
    async with open_queue(bench) as queue:
        functions = await _fill(queue, jobs)
        return {"drain in steps": await _steps(bench, jobs, functions, _drain)}


async def clean_steps(bench: Bench, jobs: int) -> Rows:
    """Clean a queue in which this many jobs are completed."""
    async with open_queue(bench) as queue:
        functions = await _fill(queue, jobs)
        await _complete(functions)
        return {"clean in steps": await _steps(bench, jobs, functions, _clean)}


async def _fill(queue: Queue[Any, Any], jobs: int) -> Functions:
    functions = Functions(queue.storage, f"glide:{{{QUEUE}}}")
    first = await queue.add("job", PAYLOAD)
    data = (await functions.reading.get_records([first.id]))[0][b"data"]
    added = 1
    while added < jobs:
        some = min(BATCH, jobs - added)
        await functions.add.jobs([AddRequest("", "job", data, b"", b"")] * some)
        added += some
    return functions


async def _complete(functions: Functions) -> None:
    """Claim and complete every job without a worker. Other scenarios measure the worker."""
    channel = RequestChannel("bench")
    running: list[ClaimedJob] = []
    unsettled: list[ClaimedJob] = []
    while True:
        request = functions.settle.request(channel, "bench", BATCH - len(unsettled), 30_000, subscribed=False)
        for job in running:
            request.settle(job.id, job.entry, None, COMPLETED)
        reply = await functions.settle.send(request)
        unsettled = running[reply.settled :]
        running = [*unsettled, *reply.jobs]
        if not running:
            break
    await functions.stalled.close_worker("bench")


async def _drain(functions: Functions, cursor: str) -> tuple[str, int]:
    return await functions.cleaning.drain(cursor, delayed=True)


async def _clean(functions: Functions, cursor: str) -> tuple[str, int]:
    next_cursor, ids = await functions.cleaning.clean_ended(cursor, "completed", 0, 10**9)
    return next_cursor, len(ids)


async def _steps(
    bench: Bench, jobs: int, functions: Functions, step: Callable[[Functions, str], Awaitable[tuple[str, int]]]
) -> dict[str, float]:
    cursor, removed, spent = "", 0, list[float]()
    began = time.perf_counter()
    while True:
        before = await _processor_seconds(bench)
        cursor, count = await step(functions, cursor)
        spent.append(await _processor_seconds(bench) - before)
        removed += count
        if not cursor:
            break
    seconds = time.perf_counter() - began
    expect("removed", removed, jobs)
    return {
        "rate": jobs / seconds,
        "server_us": sum(spent) / jobs * 1e6,
        "calls": len(spent) / jobs,
        "most_us": max(spent) * 1e6,
    } | latency_metrics(spent)


async def _processor_seconds(bench: Bench) -> float:
    """The processor time of the server's main thread. Unlike wall time, it is the same on a busy machine."""
    text = as_text(await ask(bench.wire, "INFO", "cpu"))
    return sum(map(float, re.findall(r"used_cpu_(?:user|sys)_main_thread:([\d.]+)", text)))
