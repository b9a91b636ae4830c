"""The course of a demonstration: add jobs, run workers, kill one halfway through, stop them, and audit the result."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

from glidemq_async import Backoff, JobOptions, Queue, QueueEvents
from glidemq_async._internal.waits import task_group
from glidemq_async.cli.loops import until_one
from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.demo.jobs.audit import Figures, audit
from glidemq_async.demo.jobs.demo_store import delete_queue, open_demo_store
from glidemq_async.demo.jobs.display import FRAMES, Display, Snapshot
from glidemq_async.demo.jobs.event_counts import EventCounts
from glidemq_async.demo.jobs.measure import Measure, SourceFile
from glidemq_async.demo.jobs.sources import Sources
from glidemq_async.demo.jobs.worker_process import Settings
from glidemq_async.demo.jobs.worker_processes import WorkerProcesses
from glidemq_async.errors import StorageUnavailable
from glidemq_async.stored.names import QueueKeys

LEASE_SECONDS: Final = 2.0
"""A short lease, so that the jobs of the killed worker start elsewhere within seconds."""
PATIENCE_SECONDS: Final = 60.0
"""Seconds without an ended job after which the run gives up."""
LAST_EVENTS_SECONDS: Final = 10.0

_OPTIONS: Final = JobOptions(
    attempts=3,
    backoff=Backoff.exponential(0.2, max=2, jitter=0.2),
    keep_completed=True,
    keep_failed=True,
)


@dataclass(frozen=True)
class Plan:
    """The files and options of a run. `url` None means a separate embedded server."""

    sources: Sources
    workers: int
    concurrency: int
    kill: bool
    url: str | None


@dataclass(frozen=True)
class Outcome:
    """The figures of a run, and the number of worker processes that it started."""

    figures: Figures
    processes: int


async def run_demonstration(plan: Plan, display: Display) -> Outcome:
    """Run a demonstration and delete its data. Raises GlideMQError if it cannot run."""
    async with open_demo_store(plan.url) as url:
        name = f"demo-{uuid.uuid4().hex[:12]}"
        async with Queue[SourceFile, Measure](name, url, default_options=_OPTIONS) as queue:
            try:
                return await _Demonstration(plan, display, queue, url).run()
            finally:
                if plan.url is not None:
                    await delete_queue(queue.storage, QueueKeys(DEFAULT_PREFIX, name))


class _Demonstration:
    def __init__(self, plan: Plan, display: Display, queue: Queue[SourceFile, Measure], url: str) -> None:
        self._plan = plan
        self._display = display
        self._queue = queue
        self._url = url
        self._tally = EventCounts()
        self._total = len(plan.sources.files)
        self._began = asyncio.get_running_loop().time()

    async def run(self) -> Outcome:
        events = QueueEvents(self._queue.name, self._queue.storage, after="0")
        async with task_group() as tasks:
            reader = tasks.create_task(self._tally.follow(events))
            with self._display:
                async with WorkerProcesses(self._plan.workers, self._settings(), self._display.note) as workers:
                    acknowledged = await self._add()
                    await self._until_done(workers, reader)
                await self._last_events(reader)
            reader.cancel()
        return Outcome(await audit(self._queue, acknowledged, self._tally), workers.started)

    def _settings(self) -> Settings:
        return Settings(
            url=self._url,
            queue=self._queue.name,
            name="demo",
            concurrency=self._plan.concurrency,
            lock_duration=LEASE_SECONDS,
        )

    async def _add(self) -> list[str]:
        root = str(self._plan.sources.root)
        jobs = [("measure", SourceFile(root=root, file=file)) for file in self._plan.sources.files]
        return [job.id for job in await self._queue.add_bulk(jobs)]

    async def _until_done(self, workers: WorkerProcesses, reader: asyncio.Task[None]) -> None:
        """Wait until every job has ended, or no job has ended for a minute. Raises the first error."""
        others: list[Coroutine[Any, Any, object]] = [self._draw(), workers.failed(), _result_of(reader)]
        if self._plan.kill:
            others.append(self._kill_half_way(workers))
        await until_one([self._tally.reached(self._total), self._lose_patience()], others)
        await self._draw_once()

    async def _kill_half_way(self, workers: WorkerProcesses) -> None:
        await self._tally.reached(self._total // 2)
        await workers.kill_one()
        self._display.note(f"halfway through: {workers.killed} received SIGKILL while it ran jobs")

    async def _lose_patience(self) -> None:
        before = -1
        while self._tally.done > before:
            before = self._tally.done
            await asyncio.sleep(PATIENCE_SECONDS)
        self._display.note(f"no job has ended for {PATIENCE_SECONDS:g} s; giving up")

    async def _draw(self) -> None:
        while True:
            await self._draw_once()
            await asyncio.sleep(1 / FRAMES)

    async def _draw_once(self) -> None:
        counts = await self._queue.get_job_counts()
        tally, seconds = self._tally, asyncio.get_running_loop().time() - self._began
        self._display.update(
            Snapshot(
                total=self._total,
                done=tally.done,
                active=counts["active"],
                waiting=counts["waiting"] + counts["delayed"],
                retries=tally.by_kind["retrying"],
                recovered=tally.by_kind["stalled"],
                rate=tally.done / seconds,
                seconds=seconds,
            )
        )

    async def _last_events(self, reader: asyncio.Task[None]) -> None:
        # The workers have ended, so the event of this pause is the last one. The reader stops at it.
        await self._queue.pause()
        try:
            async with asyncio.timeout(LAST_EVENTS_SECONDS):
                await _result_of(reader)
        except TimeoutError:
            raise StorageUnavailable(
                f"the last events of queue {self._queue.name!r} did not arrive within {LAST_EVENTS_SECONDS:g} s, so "
                "duplicates cannot be counted; run the demonstration again"
            ) from None


async def _result_of(task: asyncio.Task[None]) -> None:
    """Wait for a task without cancelling it when this wait is cancelled."""
    await asyncio.shield(task)
