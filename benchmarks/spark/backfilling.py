"""A backfill through a queue that holds little at a time, with a worker at the other end."""

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
from benchmarks.spark.meanwhile import meanwhile
from benchmarks.spark.part import Ground, Row
from benchmarks.spark.writing import KEYS, QUEUE, empty, jobs
from glidemq_async import Job, Queue, Worker
from glidemq_async.functions.callers import Functions
from glidemq_async.spark.pipeline.backfill import backfill

ROWS: Final = int(os.environ.get("GLIDEMQ_BACKFILL_ROWS", "0"))
"""How many rows are filled in; 0 = twice as many as other measurements write."""
MARK: Final = 10_000
BATCH: Final = 100
TASKS: Final = 2
LOOK_SECONDS: Final = 0.02
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Look:
    depth: int
    used: int
    """Bytes of the server, without what the write remembers of its ids."""
    written: int


def metered(ground: Ground) -> list[Row]:
    """The depth of the queue and the memory of the server, from the first row to the last."""
    empty(ground)
    rows = ROWS or 2 * ground.rows
    mark = min(MARK, rows // 4)
    with _looks(ground) as looks, _worker(ground):
        began = time.perf_counter()
        report = backfill(
            jobs(ground, rows),
            QUEUE,
            url=ground.url,
            campaign="bench",
            max_queue_depth=mark,
            batch_size=BATCH,
            opts=json.dumps({"keep_completed": False}),
        )
        seconds = time.perf_counter() - began
    assert report.inserted == rows, report
    # Until half of it is done the events fill up to their cap.
    steady = [look.used for look in looks if look.written >= rows // 2]
    what = f"backfill of {rows:,} rows, maxQueueDepth {mark:,}"
    return [
        Row(f"{what}: greatest depth", max(look.depth for look in looks), "jobs", "<=", mark + TASKS * BATCH),
        Row(f"{what}: rate with one worker beside it", rows / seconds, "rows/s"),
        Row(
            f"{what}: growth of the server in its second half, the ledger apart",
            (max(steady) - steady[0]) / MIB,
            "MiB",
            "<=",
            mark * 1_000 / MIB,
        ),
    ]


@contextmanager
def _worker(ground: Ground) -> Generator[None]:
    """A worker beside it."""

    async def nothing(_: Job[Any, Any]) -> None:
        return None

    async def work(over: threading.Event) -> None:
        async with Worker(QUEUE, nothing, ground.url, concurrency=100, handle_signals=False):
            await asyncio.to_thread(over.wait)

    with meanwhile(work):
        yield


@contextmanager
def _looks(ground: Ground) -> Generator[list[_Look]]:
    found: list[_Look] = []

    async def watch(over: threading.Event) -> None:
        async with connected(ground.socket) as wire, Queue[object, object](QUEUE, ground.url) as queue:
            functions = Functions(queue.storage, KEYS.base)
            while not over.is_set():
                found.append(await _look(wire, functions))
                await asyncio.sleep(LOOK_SECONDS)

    with meanwhile(watch):
        yield found


async def _look(wire: Any, functions: Functions) -> _Look:
    depth = await functions.get_depth()
    info = cast("bytes", await ask(wire, "INFO", "memory")).decode()
    used = next(int(line[12:]) for line in info.splitlines() if line.startswith("used_memory:"))
    ledger = KEYS.key("written:bench@1")
    size = cast("int | None", await ask(wire, "MEMORY", "USAGE", ledger)) or 0
    return _Look(depth, used - size, cast("int", await ask(wire, "SCARD", ledger)))


MEASURES: Final = (metered,)
