"""The demonstration from its start to its end: store, workers, Spark, and what is killed on the way."""

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
from glidemq_async._internal.waits import task_group
from glidemq_async.cli.exits import CommandError
from glidemq_async.demo.spark.crew import Member
from glidemq_async.demo.spark.driver import Result
from glidemq_async.demo.spark.files import QUEUE, Figures, expected, find_files
from glidemq_async.storage import FileStorage

LOOK_SECONDS: Final = 0.3
LINES_KEPT: Final = 15


@dataclass
class Plan:
    """What is to be shown. rate: jobs that may start in a second, so that there is something to see."""

    folder: Path
    files: int
    workers: int
    rate: int
    kill: bool


@dataclass
class State:
    """What is known at a moment, for whoever draws it."""

    jobs: int
    step: str = ""
    enqueued: int = 0
    ended: int = 0
    ingested: int = 0
    notes: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Outcome:
    """What was found, and what had to be."""

    result: Result
    expected: Figures
    killed: list[str]
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Whether the pipeline told exactly what had to happen, each event once."""
        return self.result["figures"] == self.expected and self.result["clean"]


Draw = Callable[[State], None]


async def show(plan: Plan, draw: Draw) -> Outcome:
    """Show it. Raises CommandError when the process with Spark fails."""
    return await _Show(plan, draw).run()


class _Show:
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
            await self._lead(queue)
        if self._result is None:
            raise CommandError("the process with Spark ended without a result:\n" + "\n".join(self._errors))
        return Outcome(self._result, self._expected, self._killed, time.monotonic() - began)

    async def _lead(self, queue: Queue[Any, Any]) -> None:
        """Run the process with Spark to its end, however often it is killed."""
        while self._result is None:
            driver = await Member.start(
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
        """Kill one in the middle of its jobs; on a slow machine, the others wait for Spark to come so far."""
        self._workers[0].kill()
        await self._workers[0].process.wait()
        self._workers[0] = await self._start_worker(len(self._workers))
        self._note("a worker")
        if not self._state.ingested:
            await queue.pause()

    async def _kill_driver(self, driver: Member, queue: Queue[Any, Any]) -> None:
        driver.was_killed = True
        driver.kill()
        self._note("the process with Spark")
        await queue.resume()

    def _note(self, who: str) -> None:
        self._killed.append(who)
        self._state.notes.append(f"SIGKILL after {self._state.ended:,} jobs: {who}; another one is started")
        self._draw(self._state)

    async def _look(self, queue: Queue[Any, Any]) -> None:
        await asyncio.sleep(LOOK_SECONDS)
        counts = await queue.get_job_counts()
        self._state.enqueued = sum(counts.values())
        self._state.ended = counts["completed"] + counts["failed"]
        self._draw(self._state)

    async def _listen(self, driver: Member) -> None:
        """Read what the process with Spark tells."""
        assert driver.process.stdout is not None  # noqa: S101 - it was asked for
        async for line in driver.process.stdout:
            told = json.loads(line)
            step = told.pop("step")
            if step == "done":
                self._result = cast("Result", told)
            self._state.ingested = max(self._state.ingested, told.get("events", 0))
            self._state.step = f"{step} {told['table']}" if "table" in told else step

    async def _read_errors(self, driver: Member) -> None:
        assert driver.process.stderr is not None  # noqa: S101 - it was asked for
        async for line in driver.process.stderr:
            self._errors = [*self._errors[-LINES_KEPT:], line.decode(errors="replace").rstrip()]

    async def _start_worker(self, number: int) -> Member:
        return await Member.start("worker_process", {"url": self._url, "name": f"demo-{number}", "concurrency": 16})

    async def _stop_workers(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self._workers))
