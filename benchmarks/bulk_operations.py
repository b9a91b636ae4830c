"""Bulk operations under load, whose runners are killed twice: `make bench-operations`.

Delayed jobs are promoted in bulk, and failed jobs are retried. At the same time a producer adds other jobs of the same
kind, a client removes some of the previewed ones, and a worker runs the changed jobs. Each previewed job must run once
or be refused, and no later job may be changed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from glidemq_async import JobNotFound, JobOptions, Queue, UnrecoverableError, Worker
from glidemq_async.ops import Operation, Ops
from glidemq_async.storage import open_storage

from .tables import markdown

REPORT = Path(__file__).parents[1] / "docs" / "reports" / "operations.md"
QUEUE = "bulk"
LEASE_SECONDS = 1.0
REMOVED_SHARE = 0.01


ACTIONS: Final = ("promote", "retry")


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
    """The runs of each previewed job after the start of the operation."""


class OperationLoad:
    """The jobs of the measurement, and the other changes of the queue during the operation."""

    def __init__(self, queue: Queue[Any, Any], action: str) -> None:
        self._queue = queue
        self._retries = action == "retry"
        self._options = JobOptions(keep_failed=True) if self._retries else JobOptions(delay=86_400)
        self._fails = True
        self.ids: list[str] = []
        """The previewed jobs."""
        self.later: list[str] = []
        """The jobs that were added after the preview."""
        self.runs: Counter[str] = Counter()

    @property
    def filter(self) -> str:
        """The filter of the operation."""
        return f"queue:{QUEUE} state:{'failed' if self._retries else 'delayed'}"

    async def work(self, job: Any) -> None:
        """Run a job. The jobs of a retry fail at first, and later ones always do."""
        if self._retries and (self._fails or job.name == "later"):
            if job.name == "later":
                self.runs[job.id] += 1
            raise UnrecoverableError("the mail server is away")
        self.runs[job.id] += 1

    async def fill(self, count: int) -> None:
        """Add the jobs. If the action is `retry`, run them until they fail."""
        for start in range(0, count, 2_000):
            numbers = range(start, min(start + 2_000, count))
            jobs = await self._queue.add_bulk([("n", number, self._options) for number in numbers])
            self.ids += [job.id for job in jobs]
        if self._retries:
            async with Worker(QUEUE, self.work, self._queue.storage, concurrency=100) as worker:
                await worker.until_empty()
        self._fails = False

    async def go_on(self) -> None:
        """Add later jobs, and remove some of the previewed ones, until cancelled."""
        doomed = self.ids[:: round(1 / REMOVED_SHARE)]
        while True:
            jobs = await self._queue.add_bulk([("later", 0, self._options)] * 5)
            self.later += [job.id for job in jobs]
            if doomed:
                with suppress(JobNotFound):
                    await self._queue.remove(doomed.pop())
            await asyncio.sleep(0.01)

    def later_changed(self) -> int:
        """Return how many later jobs the operation has changed: a delayed one that ran, a failed one that ran twice."""
        own = 1 if self._retries else 0
        return sum(self.runs.pop(job_id, 0) > own for job_id in self.later)


async def change_under_load(url: str, action: str, count: int, kills: int) -> Outcome:
    """Change `count` jobs under load, and kill the runner of the operation several times."""
    async with open_storage(url) as storage, Queue[Any, Any](QUEUE, storage) as queue, Ops(storage) as ops:
        load = OperationLoad(queue, action)
        await load.fill(count)
        began = time.monotonic()
        preview = await ops.preview(action, load.filter)
        previewed = time.monotonic()
        async with Worker(QUEUE, load.work, storage, concurrency=50) as worker:
            going = asyncio.create_task(load.go_on())
            await ops.start(preview.operation_id, preview.ticket)
            operation = await _run_and_kill(ops, url, preview.operation_id, kills, count)
            ended = time.monotonic()
            going.cancel()
            with suppress(asyncio.CancelledError):
                await going
            await worker.until_empty()
        times = (previewed - began, ended - previewed)
        return Outcome(operation, preview.count, *times, kills, len(load.later), load.later_changed(), load.runs)


async def _run_and_kill(ops: Ops, url: str, operation_id: str, kills: int, count: int) -> Operation:
    for kill in range(kills):
        runner = await _spawn(url)
        at = count * (kill + 1) // (kills + 2)
        while _handled(await ops.operation(operation_id)) < at:  # noqa: ASYNC110 - another process runs it
            await asyncio.sleep(0.01)
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


def report_of(outcomes: Sequence[Outcome]) -> str:
    """Return the report."""
    rows = [["Figure", *(f"`{one.operation.action}`" for one in outcomes)]]
    rows += [[name, *map(show, outcomes)] for name, show in FIGURES.items()]
    return f"""# Bulk operations: figures

This page has the figures of [bulk operations](../operations.md). `make bench-operations` measures them again.

Delayed jobs are promoted in bulk, and failed jobs are retried. Meanwhile a producer adds other jobs of the same kind, a
client removes some of the previewed ones, and a worker runs the changed jobs. The process that runs the operation is
killed {outcomes[0].kills} times. The producer, the worker, the runner and the server share the processors.

{markdown(rows)}

A killed runner is replaced when its lease has expired. The lease was {LEASE_SECONDS:g} s here; the default is 30 s.
"""


def _refused(outcome: Outcome) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(outcome.operation.refused.items())) or "none"


FIGURES: Final[Mapping[str, Callable[[Outcome], str]]] = {
    "jobs of the preview": lambda one: f"{one.previewed:,}",
    "changed": lambda one: f"{one.operation.done:,}",
    "refused": _refused,
    "changed + refused": lambda one: f"{_handled(one.operation):,}",
    "jobs added after the cut-off": lambda one: f"{one.later:,}",
    "of these changed": lambda one: f"{one.later_changed:,}",
    "previewed jobs that ran more than once": lambda one: f"{sum(n > 1 for n in one.runs.values()):,}",
    "time of the preview": lambda one: f"{one.preview_seconds:.1f} s",
    "time of the operation with the kills": lambda one: f"{one.seconds:.1f} s",
    "jobs a second": lambda one: f"{one.previewed / one.seconds:,.0f}",
}


async def measure(count: int, kills: int) -> None:
    """Measure on an embedded server, and write the report."""
    outcomes: list[Outcome] = []
    for action in ACTIONS:
        with TemporaryDirectory() as folder:
            outcomes.append(await change_under_load(f"file://{folder}/store", action, count, kills))
    text = report_of(outcomes)
    REPORT.write_text(text, encoding="utf-8")
    print(text)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", metavar="URL", help="run the operations of this server")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=2)
    given = parser.parse_args()
    logging.disable(logging.ERROR)  # each job of a retry fails first, and its worker logs that
    asyncio.run(run_operations(given.run) if given.run else measure(given.count, given.kills))


if __name__ == "__main__":
    main()
