"""The course of the demonstration with Spark: store, workers, the process with Spark, and the kills."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from glidemq_async import Queue, RateLimit
from glidemq_async._internal.waits import finish_all, task_group
from glidemq_async.cli.exits import CommandError
from glidemq_async.demo.spark.child_process import ChildProcess
from glidemq_async.demo.spark.driver import Result
from glidemq_async.demo.spark.files import QUEUE, Figures, expected, find_files
from glidemq_async.storage import FileStorage

LOOK_SECONDS: Final = 0.3
LINES_KEPT: Final = 15


@dataclass
class Plan:
    """The options of a run. `rate` limits the jobs that start in a second, so that a run can be watched."""

    folder: Path
    files: int
    workers: int
    rate: int
    kill: bool


@dataclass
class State:
    """The progress at one moment, for the display."""

    jobs: int
    step: str = ""
    enqueued: int = 0
    ended: int = 0
    ingested: int = 0
    notes: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Outcome:
    """The figures of a run and the expected figures."""

    result: Result
    expected: Figures
    killed: list[str]
    seconds: float

    @property
    def as_expected(self) -> bool:
        """True if the pipeline found the expected figures and each event exactly once."""
        return self.result["figures"] == self.expected and self.result["clean"]


Draw = Callable[[State], None]


async def run_demonstration(plan: Plan, draw: Draw) -> Outcome:
    """Run the demonstration. Raises CommandError if the process with Spark fails."""
    return await _Demonstration(plan, draw).run()


class _Demonstration:
    def __init__(self, plan: Plan, draw: Draw) -> None:
        self._plan = plan
        self._draw = draw
        files = find_files(plan.files)
        self._expected = expected(files)
        self._state = State(len(files))
        self._url = (plan.folder / "store").as_uri()
        self._killed: list[str] = []
        self._result: Result | None = None
        self._errors: list[str] = []

    async def run(self) -> Outcome:
        began = time.monotonic()
        (self._plan.folder / "store").mkdir(parents=True, exist_ok=True)
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(FileStorage(self._plan.folder / "store"))
            queue = await stack.enter_async_context(Queue[Any, Any](QUEUE, store))
            await queue.set_global_rate_limit(RateLimit(self._plan.rate, 1))
            self._workers = [await self._start_worker(number) for number in range(self._plan.workers)]
            stack.push_async_callback(self._stop_workers)
            await self._run_driver(queue)
        if self._result is None:
            raise CommandError("the process with Spark ended without a result:\n" + "\n".join(self._errors))
        return Outcome(self._result, self._expected, self._killed, time.monotonic() - began)

    async def _run_driver(self, queue: Queue[Any, Any]) -> None:
        """Run the process with Spark until it has a result. Start it again each time it was killed."""
        while self._result is None:
            driver = await ChildProcess.start(
                "driver", {"url": self._url, "folder": str(self._plan.folder), "files": self._plan.files}
            )
            try:
                async with task_group() as tasks:
                    listening = tasks.create_task(self._listen(driver))
                    tasks.create_task(self._read_errors(driver))
                    while not listening.done():
                        await self._look(queue)
                        if self._is_half_way() and not self._killed:
                            await self._kill_worker(queue)
                        if self._is_half_way() and len(self._killed) == 1 and self._state.ingested:
                            await self._kill_driver(driver, queue)
            finally:
                driver.kill()
                await driver.process.wait()
            if not driver.was_killed:
                return

    def _is_half_way(self) -> bool:
        return self._plan.kill and 2 * self._state.ended >= self._state.jobs

    async def _kill_worker(self, queue: Queue[Any, Any]) -> None:
        """Kill a worker that runs jobs. On a slow machine, pause the queue until Spark has read the first events."""
        self._workers[0].kill()
        await self._workers[0].process.wait()
        self._workers[0] = await self._start_worker(len(self._workers))
        self._note("a worker")
        if not self._state.ingested:
            await queue.pause()

    async def _kill_driver(self, driver: ChildProcess, queue: Queue[Any, Any]) -> None:
        driver.was_killed = True
        driver.kill()
        self._note("the process with Spark")
        await queue.resume()

    def _note(self, who: str) -> None:
        self._killed.append(who)
        self._state.notes.append(f"SIGKILL after {self._state.ended:,} jobs: {who}; starting another one")
        self._draw(self._state)

    async def _look(self, queue: Queue[Any, Any]) -> None:
        await asyncio.sleep(LOOK_SECONDS)
        counts = await queue.get_job_counts()
        self._state.enqueued = sum(counts.values())
        self._state.ended = counts["completed"] + counts["failed"]
        self._draw(self._state)

    async def _listen(self, driver: ChildProcess) -> None:
        """Read the steps that the process with Spark reports."""
        assert driver.process.stdout is not None  # noqa: S101 - requested at its start
        async for line in driver.process.stdout:
            step_report = json.loads(line)
            step = step_report.pop("step")
            if step == "done":
                self._result = cast("Result", step_report)
            self._state.ingested = max(self._state.ingested, step_report.get("events", 0))
            self._state.step = f"{step} {step_report['table']}" if "table" in step_report else step

    async def _read_errors(self, driver: ChildProcess) -> None:
        assert driver.process.stderr is not None  # noqa: S101 - requested at its start
        async for line in driver.process.stderr:
            self._errors = [*self._errors[-LINES_KEPT:], line.decode(errors="replace").rstrip()]

    async def _start_worker(self, number: int) -> ChildProcess:
        return await ChildProcess.start(
            "worker_process", {"url": self._url, "name": f"demo-{number}", "concurrency": 16}
        )

    async def _stop_workers(self) -> None:
        await finish_all(worker.stop() for worker in self._workers)
