"""The cost of calls while a million jobs wait: one fill for each shape of the queue, and all measurements on it.

Function calls drive the queue without a worker. A second queue of the same shape on the same server holds few jobs. The
two queues take turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from glidemq_async import Queue
from glidemq_async.storage.redis.wire import as_text

from .bench import Bench, expect
from .call_times import processor_times
from .driven import Driven
from .meter import Metrics, Rows
from .server import ServerCost, ask
from .shapes import CHANGES, SHAPES, STEPS
from .slow_log import durations_of

CHUNK: Final = 500
CHUNKS: Final = 40
KEPT_EVENTS: Final = 100_000
FIRST_ID: Final = 1_000_000
"""Both queues begin with ids of this length, because ids are parts of texts that the server stores."""


async def _turns(bench: Bench, shape: str, queues: Sequence[tuple[str, Driven]], chunks: int) -> Rows:
    """Let the queues take turns at working and adding; return the medians of the turns' costs.

    Each new job gets the key of a completed job, so each queue keeps its shape.
    """
    found: dict[str, list[ServerCost]] = {}
    for _ in range(chunks):
        for depth, queue in queues:
            before = await ServerCost.read(bench.wire)
            keys = await queue.work(CHUNK)
            between = await ServerCost.read(bench.wire)
            await queue.replace(keys)
            after = await ServerCost.read(bench.wire)
            costs = {"addJob": after.since(between), "settleAndClaim": between.since(before)}
            for step in STEPS:
                found.setdefault(f"{depth}, {shape}: {step}", []).append(costs[step])
    return {row: _medians(costs) for row, costs in found.items()}


def _command_seconds(cost: ServerCost) -> float:
    # A worker that claims directly reads the entries itself, in a transaction with its function calls.
    return cost.in_functions + (cost.seconds.get("xreadgroup", 0.0) if cost.calls.get("exec") else 0.0)


def _medians(costs: Sequence[ServerCost]) -> Metrics:
    return {
        "command_us": statistics.median(map(_command_seconds, costs)) / CHUNK * 1e6,
        "server_us": statistics.median(cost.processor for cost in costs) / CHUNK * 1e6,
    }


async def _changes(bench: Bench, shape: str, queue: Driven, count: int) -> Rows:
    """Revoke, change and remove waiting jobs in all parts of the queue; return the server's time for each call."""
    rows: Rows = {}
    waiting = [job_id for ids in queue.late for job_id in ids]
    step = len(waiting) // (len(CHANGES) * count)
    for position, (change, function) in enumerate(CHANGES.items()):
        async with durations_of(bench.wire, function) as taken:
            for number in range(count):
                job_id = waiting[(number * len(CHANGES) + position) * step]
                if await queue.change(change, job_id) not in ("ok", "revoked"):
                    raise RuntimeError(f"{change} of job {job_id} was refused; the run is void")
        rows[f"deep, {shape}: {change}"] = taken.metrics()
    return rows


async def _filled(bench: Bench, queue: Queue[Any, Any], name: str, shape: str, jobs: int) -> Driven:
    await queue.connect()
    driven = Driven(queue, name)
    await ask(bench.wire, "INCRBY", f"{driven.base}:id", FIRST_ID)
    filled = await SHAPES[shape].fill(driven, jobs)
    expect(f"fill of {name}", await queue.count(), filled)
    return driven


async def _events(bench: Bench, queue: Driven) -> int:
    return int(as_text(await ask(bench.wire, "HGET", f"{queue.base}:meta2", "events")))


async def _write_events(bench: Bench, queue: Driven, events: int) -> None:
    """Let the queue write as many events as the other one keeps. The server measures a longer stream for a longer time.

    The queue keeps its shape.
    """
    while await _events(bench, queue) < events:
        await queue.replace(await queue.work(CHUNK))


async def _deep(shape: str, bench: Bench, jobs: int, count: int) -> Rows:
    # The first half of the jobs is left to the claims.
    chunks = max(1, min(CHUNKS, jobs // 4 // CHUNK))
    async with Queue[Any, Any]("deep", bench.url) as queue, Queue[Any, Any]("shallow", bench.url) as other:
        async with processor_times(bench.wire, f"deep, {shape}") as rows:
            deep = await _filled(bench, queue, "deep", shape, jobs)
        if few := min(SHAPES[shape].few, jobs):
            shallow = await _filled(bench, other, "shallow", shape, few)
            await _write_events(bench, shallow, min(KEPT_EVENTS, await _events(bench, deep)))
            rows |= await _turns(bench, shape, (("shallow", shallow), ("deep", deep)), chunks)
        rows |= await _changes(bench, shape, deep, count)
    return rows


DEEP_RUNS: Final[dict[str, Callable[[Bench, int, int], Awaitable[Rows]]]] = {
    f"deep, {shape}": partial(_deep, shape) for shape in SHAPES
}
