"""Measure the server's memory for one job of each kind: `make bench-memory`.

Each kind is measured on a new server. The figure is the growth of the dataset divided by the number of jobs.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.server import running_server, tcp_server
from glidemq_async import Backoff, Deduplication, JobOptions, Queue, UnrecoverableError, Worker
from glidemq_async.storage import Endpoint
from glidemq_async.storage.redis.connections import dial
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.wire import as_text
from tests.support.servers import redis7_binary

REPORT: Final = Path(__file__).parents[1] / "docs" / "reports" / "memory.md"
BATCH: Final = 1_000
PAYLOAD: Final = 100
"""Bytes of the payload of each job."""

Fill: TypeAlias = "Callable[[Queue[Any, Any], int], Awaitable[None]]"


def added(options: Callable[[int], JobOptions]) -> Fill:
    """Return a function that adds jobs with these options."""

    async def fill(queue: Queue[Any, Any], count: int) -> None:
        await _add(queue, count, options)

    return fill


async def _add(queue: Queue[Any, Any], count: int, options: Callable[[int], JobOptions]) -> None:
    start = await queue.count()
    for first in range(start, start + count, BATCH):
        numbers = range(first, min(first + BATCH, start + count))
        await queue.add_bulk([("n", b"x" * PAYLOAD, options(number)) for number in numbers])


def run(handler: Callable[[Any], Awaitable[Any]]) -> Fill:
    """Return a function that adds jobs, runs them, and keeps all of them."""

    async def fill(queue: Queue[Any, Any], count: int) -> None:
        await _add(queue, count, lambda _: JobOptions(keep_completed=10**6, keep_failed=10**6))
        await Worker("q", handler, queue.storage, concurrency=100).run(until_empty=True)

    return fill


async def succeed(_job: Any) -> None:
    """Complete without a result."""


async def reply(_job: Any) -> bytes:
    """Complete with a result of the size of the payload."""
    return b"r" * PAYLOAD


async def fail(_job: Any) -> None:
    """Fail for good."""
    raise UnrecoverableError("no")


KINDS: Final[dict[str, Fill]] = {
    "waiting, plain": added(lambda _: JobOptions()),
    "waiting, with an id": added(lambda number: JobOptions(job_id=f"order-{number:08}")),
    "waiting, with attempts and a backoff": added(lambda _: JobOptions(attempts=5, backoff=Backoff.exponential(1))),
    "prioritized": added(lambda number: JobOptions(priority=1 + number % 10)),
    "LIFO": added(lambda _: JobOptions(lifo=True)),
    "delayed": added(lambda number: JobOptions(delay=3_600 + number)),
    "keyed, 100 jobs a key": added(lambda number: JobOptions(key=f"tenant-{number // 100:06}")),
    "keyed, 1 job a key": added(lambda number: JobOptions(key=f"tenant-{number:06}")),
    "with a deduplication id": added(lambda number: JobOptions(deduplication=Deduplication(f"order-{number:08}"))),
    "completed, kept": run(succeed),
    "completed with a result of 100 bytes, kept": run(reply),
    "failed, kept": run(fail),
}


async def measure(url: str, fill: Fill, count: int) -> float:
    """Return the bytes of the server for one job, without events."""
    async with Queue[Any, Any]("q", url) as queue:
        # The first jobs create structures whose size does not depend on the number of jobs.
        await fill(queue, BATCH)
        before = await _stored(url)
        await fill(queue, count)
        return (await _stored(url) - before) / count


async def _stored(url: str) -> int:
    """Return the bytes of the dataset without the stream of events, whose size is limited."""
    address = url.partition("://")[2]
    endpoint = Endpoint(path=address) if url.startswith("unix") else Endpoint("127.0.0.1", int(address.split(":")[1]))
    wire = await dial(endpoint)
    try:
        deadline = asyncio.get_running_loop().time() + 10
        info = as_text(await wire.send(pack("INFO", "memory"), deadline))
        events = await wire.send(pack("MEMORY", "USAGE", "glide:{q}:events", "SAMPLES", 0), deadline)
    finally:
        wire.drop("measured")
    return int(info.partition("used_memory_dataset:")[2].split()[0]) - (events if isinstance(events, int) else 0)


def report_of(rows: dict[str, list[float]], servers: list[str], count: int) -> str:
    """Return the report."""
    lines = "\n".join(
        f"| {kind} | {' | '.join(f'{each:,.0f}' for each in figures)} |" for kind, figures in rows.items()
    )
    return f"""# Memory of a job

This page has the server's memory for one job of each kind. `make bench-memory` measures it again.

The figure is the growth of the dataset for {count:,} further jobs, divided by their number. It contains the payload of
{PAYLOAD} bytes. `stream-node-max-entries` is 10 on Valkey, and the default on Redis.

| bytes/job | {" | ".join(servers)} |
|---|{"--:|" * len(servers)}
{lines}

- Events are not in the figures. The server keeps about 100,000 of them, or 16 MiB, for each queue.
- The [limits](../operating.md#limits) of a queue bound its kept jobs, so their number does not grow with the load.
- A failed job has a record with its traceback. Its size depends on the depth of the handler's calls.
"""


def main() -> None:
    """Measure all kinds, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="jobs of each kind")
    parser.add_argument("--no-report", action="store_true", help="print the report instead of writing it")
    given = parser.parse_args()
    servers: dict[str, Callable[[], AbstractContextManager[str]]] = {"Valkey": running_server}
    if (binary := redis7_binary()) is not None:
        servers["Redis"] = lambda: tcp_server(binary)
    logging.disable()  # the failures of jobs that must fail
    rows: dict[str, list[float]] = {}
    for kind, fill in KINDS.items():
        rows[kind] = []
        for start in servers.values():
            with start() as url:
                rows[kind].append(asyncio.run(measure(url, fill, given.count)))
    report = report_of(rows, list(servers), given.count)
    if given.no_report:
        print(report)
    else:
        REPORT.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
