"""Measure a backfill through a queue of limited depth, while a worker runs its jobs."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

from benchmarks.server import ask, connected
from benchmarks.spark.background_loop import in_background
from benchmarks.spark.bulk_writes import KEYS, QUEUE, empty, jobs
from benchmarks.spark.setup import Row, Setup
from glidemq_async import Job, Queue, Worker
from glidemq_async.functions.callers import Functions
from glidemq_async.spark.pipeline.backfill import backfill

ROWS: Final = int(os.environ.get("GLIDEMQ_BACKFILL_ROWS", "0"))
"""Number of rows. 0 means twice the number that the other measurements write."""
MARK: Final = 10_000
BATCH: Final = 100
TASKS: Final = 2
LOOK_SECONDS: Final = 0.02
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Look:
    depth: int
    used: int
    """Bytes of the server, without the ledger of the write."""
    written: int


def metered(setup: Setup) -> list[Row]:
    """Measure the depth of the queue and the memory of the server during a backfill."""
    empty(setup)
    rows = ROWS or 2 * setup.rows
    mark = min(MARK, rows // 4)
    with _looks(setup) as looks, _worker(setup):
        began = time.perf_counter()
        report = backfill(
            jobs(setup, rows),
            QUEUE,
            url=setup.url,
            campaign="bench",
            max_queue_depth=mark,
            batch_size=BATCH,
            opts=json.dumps({"keep_completed": False}),
        )
        seconds = time.perf_counter() - began
    assert report.inserted == rows, report
    # During the first half the event stream grows up to its limit.
    steady = [look.used for look in looks if look.written >= rows // 2]
    what = f"backfill of {rows:,} rows, maxQueueDepth {mark:,}"
    return [
        Row(f"{what}: maximum depth", max(look.depth for look in looks), "jobs", "<=", mark + TASKS * BATCH),
        Row(f"{what}: rate with one running worker", rows / seconds, "rows/s"),
        Row(
            f"{what}: growth of server memory in the second half, without the ledger",
            (max(steady) - steady[0]) / MIB,
            "MiB",
            "<=",
            mark * 1_000 / MIB,
        ),
    ]


@contextmanager
def _worker(setup: Setup) -> Generator[None]:
    """Run a worker during the block."""

    async def nothing(_: Job[Any, Any]) -> None:
        return None

    async def work(over: threading.Event) -> None:
        async with Worker(QUEUE, nothing, setup.url, concurrency=100, handle_signals=False):
            await asyncio.to_thread(over.wait)

    with in_background(work):
        yield


@contextmanager
def _looks(setup: Setup) -> Generator[list[_Look]]:
    found: list[_Look] = []

    async def watch(over: threading.Event) -> None:
        async with connected(setup.url) as wire, Queue[object, object](QUEUE, setup.url) as queue:
            functions = Functions(queue.storage, KEYS.base)
            while not over.is_set():
                found.append(await _look(wire, functions))
                await asyncio.sleep(LOOK_SECONDS)

    with in_background(watch):
        yield found


async def _look(wire: Any, functions: Functions) -> _Look:
    depth = await functions.writes.get_depth()
    info = cast("bytes", await ask(wire, "INFO", "memory")).decode()
    used = next(int(line[12:]) for line in info.splitlines() if line.startswith("used_memory:"))
    ledger = KEYS.key("written:bench@1")
    size = cast("int | None", await ask(wire, "MEMORY", "USAGE", ledger)) or 0
    return _Look(depth, used - size, cast("int", await ask(wire, "SCARD", ledger)))


MEASURES: Final = (metered,)
