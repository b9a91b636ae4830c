"""A bulk operation under load, whose runner is killed twice: `make bench-operations`.

Delayed jobs are promoted in bulk while a producer adds other delayed jobs, a client removes some of the previewed ones,
and a worker runs what is promoted. Each previewed job must run once or be refused, and no later job may run.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from glidemq_async import JobNotFound, JobOptions, Queue, Worker
from glidemq_async.ops import Operation, Ops
from glidemq_async.storage import open_storage

REPORT = Path(__file__).parents[1] / "docs" / "reports" / "operations.md"
QUEUE = "bulk"
LEASE_SECONDS = 1.0
REMOVED_SHARE = 0.01
_DELAYED = JobOptions(delay=86_400)


@dataclass(frozen=True)
class Outcome:
    """The result of an operation."""

    operation: Operation
    previewed: int
    preview_seconds: float
    seconds: float
    kills: int
    later: int
    """Number of jobs that were added during the operation."""
    later_changed: int
    """Number of these jobs that the operation has changed."""
    runs: Counter[str]
    """The runs of each job."""


async def promote_under_load(url: str, count: int, kills: int) -> Outcome:
    """Promote `count` delayed jobs under load, and kill the runner of the operation several times."""
    runs: Counter[str] = Counter()

    async def work(job: Any) -> None:
        runs[job.id] += 1

    async with open_storage(url) as storage, Queue[Any, Any](QUEUE, storage) as queue, Ops(storage) as ops:
        ids = await _fill(queue, count)
        began = time.monotonic()
        preview = await ops.preview("promote", f"queue:{QUEUE} state:delayed")
        previewed = time.monotonic()
        async with Worker(QUEUE, work, storage, concurrency=50) as worker:
            load = asyncio.create_task(_load(queue, ids))
            await ops.start(preview.operation_id, preview.ticket)
            operation = await _run_and_kill(ops, url, preview.operation_id, kills, count)
            ended = time.monotonic()
            load.cancel()
            with suppress(asyncio.CancelledError):
                await load
            await worker.until_empty()
        later = [job.id async for job in queue.iter_jobs("delayed")]
        added = set(_later)
        changed = sum(job_id in runs for job_id in added)
        assert len(added & set(later)) == len(added) - changed
        _later.clear()
        times = (previewed - began, ended - previewed)
        return Outcome(operation, preview.count, *times, kills, len(added), changed, runs)


_later: list[str] = []


async def _fill(queue: Queue[Any, Any], count: int) -> list[str]:
    ids: list[str] = []
    for start in range(0, count, 2_000):
        jobs = await queue.add_bulk([("n", number, _DELAYED) for number in range(start, min(start + 2_000, count))])
        ids += [job.id for job in jobs]
    return ids


async def _load(queue: Queue[Any, Any], ids: list[str]) -> None:
    """Add later jobs, and remove some of the previewed ones."""
    doomed = ids[:: round(1 / REMOVED_SHARE)]
    while True:
        jobs = await queue.add_bulk([("later", 0, _DELAYED)] * 10)
        _later.extend(job.id for job in jobs)
        if doomed:
            with suppress(JobNotFound):
                await queue.remove(doomed.pop())
        await asyncio.sleep(0.005)


async def _run_and_kill(ops: Ops, url: str, operation_id: str, kills: int, count: int) -> Operation:
    for kill in range(kills):
        runner = await _spawn(url)
        at = count * (kill + 1) // (kills + 2)
        while _handled(await ops.operation(operation_id)) < at:  # noqa: ASYNC110 - another process runs it
            await asyncio.sleep(0.002)
        runner.send_signal(signal.SIGKILL)
        await runner.wait()
    runner = await _spawn(url)
    try:
        return await ops.wait_operation(operation_id, 600)
    finally:
        runner.terminate()
        await runner.wait()


def _handled(operation: Operation) -> int:
    return operation.done + sum(operation.refused.values())


async def _spawn(url: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-m", __spec__.name, "--run", url)


async def run_operations(url: str) -> None:
    """Run operations until this process is ended."""
    async with Ops(url) as ops:
        await ops.worker(lock_duration=LEASE_SECONDS).run()


def report_of(outcome: Outcome) -> str:
    """Return the report."""
    operation = outcome.operation
    refused = ", ".join(f"{count:,} {reason}" for reason, count in sorted(operation.refused.items())) or "none"
    rate = round(outcome.previewed / outcome.seconds)
    return f"""# Bulk operations: figures

This page has the figures of [bulk operations](../operations.md). `make bench-operations` measures them again.

Delayed jobs are promoted in bulk. Meanwhile a producer adds other delayed jobs, a client removes some of the previewed
ones, and a worker runs the promoted jobs. The process that runs the operation is killed {outcome.kills} times.

| Figure | Value |
|---|---|
| jobs of the preview | {outcome.previewed:,} |
| changed | {operation.done:,} |
| refused | {refused} |
| changed + refused | {_handled(operation):,} |
| jobs added after the cut-off | {outcome.later:,} |
| of these changed | {outcome.later_changed:,} |
| previewed jobs that ran more than once | {sum(n > 1 for n in outcome.runs.values()):,} |
| time of the preview | {outcome.preview_seconds:.1f} s |
| time of the operation with the kills | {outcome.seconds:.1f} s ({rate:,} jobs/s) |

A killed runner is replaced when its lease has expired. The lease was {LEASE_SECONDS:g} s here; the default is 30 s.
"""


async def measure(count: int, kills: int) -> None:
    """Measure on an embedded server, and write the report."""
    with TemporaryDirectory() as folder:
        text = report_of(await promote_under_load(f"file://{folder}/store", count, kills))
    REPORT.write_text(text, encoding="utf-8")
    print(text)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", metavar="URL", help="run the operations of this server")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=2)
    given = parser.parse_args()
    asyncio.run(run_operations(given.run) if given.run else measure(given.count, given.kills))


if __name__ == "__main__":
    main()
