"""The forked processes of a crash run: they work, add jobs, and follow the events.

Each makes its own event loop and writes its actions to the journal. The parent decides when they die.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import uvloop

from glidemq_async import (
    EventGap,
    Job,
    KeepJobs,
    Queue,
    QueueEvents,
    RateLimited,
    RetryLater,
    StorageUnavailable,
    UnrecoverableError,
    Worker,
)
from glidemq_async._internal import failpoints
from glidemq_async.functions import loader
from glidemq_async.storage import Endpoint, FileStorage, RedisStorage, Storage, open_storage
from glidemq_async.storage.redis.library import Library
from tests.crash.journal import Journal

KEEP_ALL = KeepJobs()
#: Points of the handler itself; the others are in the library. At RECORDING the call is on its way that gives a plain
#: job its record, at RECORDED it has its reply.
MID_HANDLER, RECORDING, RECORDED = "run.mid_handler", "run.recording", "run.recorded"
HANDLER_POINTS = {MID_HANDLER, RECORDING, RECORDED}
#: The beginnings of points that no worker of these runs passes: nothing is moved to another queue, the queues have the
#: present layout, and workers are seldom idle. tests/conformance/test_outbox.py, tests/migration and
#: test_lost_pushes.py test these interruptions.
ELSEWHERE = ("relay.", "migrate.", "push.")
POINTS = sorted({name for name in failpoints.NAMES if not name.startswith(ELSEWHERE)} | HANDLER_POINTS)
ADD_POINTS = [point for point in POINTS if point.startswith("add.")]
SHUTDOWN_POINTS = [point for point in POINTS if point.startswith("shutdown.")]


class Payload(TypedDict):
    """The instructions of a job: sleep (seconds), fail this many times first, fail for good, kill its process.

    In its first run it may ask to run `later`, or report that it `met` an external limit: seconds, 0 for neither.
    A job that is `noted` writes its progress, for which a plain job gets a record.
    """

    sleep: float
    failures: int
    fatal: bool
    poison: bool
    later: float
    met: float
    noted: NotRequired[bool]
    filler: NotRequired[str]


def payload(
    sleep: float = 0.0,
    *,
    failures: int = 0,
    fatal: bool = False,
    poison: bool = False,
    later: float = 0.0,
    met: float = 0.0,
) -> Payload:
    """Describe a job."""
    return {"sleep": sleep, "failures": failures, "fatal": fatal, "poison": poison, "later": later, "met": met}


class _Text:
    """Return the library that the processes of a run load: the testing build, so that switches keep their setting."""

    library = Library(loader.source(testing=True))


def break_library(old: str, new: str) -> None:
    """Make this process and its children load a library in which one statement is replaced."""
    text = loader.source(testing=True)
    if text.count(old) != 1:
        raise ValueError(f"occurs {text.count(old)} times in the Lua instead of once: {old!r}")
    _Text.library = Library(text.replace(old, new))


def connect_to(url: str) -> Storage:
    """Return the storage of the run: the testing build on a socket and in a file, the released library elsewhere."""
    kind, _, path = url.partition("://")
    if kind == "file":
        return FileStorage(path, linger=1.0, testing=True)
    if kind == "unix":
        return RedisStorage(Endpoint(path=path), url, _Text.library)
    return open_storage(url)


def run_loop(main: Coroutine[Any, Any, None], *, fast: bool = False) -> None:
    """Run a coroutine in a new event loop of this process."""
    logging.disable(logging.WARNING)
    # Jobs that are instructed to fail do. Their log lines are not complaints.
    logging.getLogger("glidemq_async.worker.reports").setLevel(logging.CRITICAL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if fast else None) as runner:
        runner.run(main)


class Trap:
    """Kills this process when it passes a point for the n-th time, and writes that to the journal first."""

    def __init__(self, journal: Journal, point: str, nth: int) -> None:
        self._journal = journal
        self._point = point
        self._left = nth
        if point in failpoints.NAMES:
            failpoints.arm(point, self._passed)

    def _passed(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._journal.write("point", self._point)
            os.kill(os.getpid(), signal.SIGKILL)

    def pass_handler(self, point: str) -> None:
        """Pass a failpoint inside the handler."""
        if self._point == point:
            self._passed()


@dataclass(frozen=True)
class WorkerRole:
    """A worker process. It kills itself at the n-th pass of `point` ("" = never)."""

    url: str
    queue: str
    journal: Journal
    concurrency: int = 20
    lease: float = 1.0
    max_stalled: int = 100_000
    grace: float = 0.5
    poll: float = 5.0
    point: str = ""
    nth: int = 1
    fast: bool = False

    def __call__(self) -> None:
        """Work until a signal."""
        run_loop(self._work(), fast=self.fast)

    async def _work(self) -> None:
        trap = Trap(self.journal, self.point, self.nth)
        async with connect_to(self.url) as storage:
            worker = Worker(
                self.queue,
                Handler(self.journal, trap),
                storage,
                concurrency=self.concurrency,
                lock_duration=self.lease,
                max_stalled=self.max_stalled,
                poll_interval=self.poll,
                shutdown_timeout=self.grace,
            )
            _write_outcomes(worker, self.journal)
            await worker.run()


class EventsMissedError(Exception):
    """The reader of the events was too slow, so the run cannot be checked."""


class Handler:
    """The handler: follows the instructions in a job's payload."""

    def __init__(self, journal: Journal, trap: Trap) -> None:
        self._journal = journal
        self._trap = trap

    async def __call__(self, job: Job[Payload, int]) -> int:
        self._journal.write("start", job.id, job.fence, job.name)
        try:
            return await self._run(job)
        finally:
            self._journal.write("end", job.id, job.fence)

    async def _run(self, job: Job[Payload, int]) -> int:
        instructions = job.data
        await asyncio.sleep(instructions["sleep"] / 2)
        self._trap.pass_handler(MID_HANDLER)
        if instructions.get("noted"):
            await self._note(job)
        if instructions["poison"]:
            self._journal.write("poison", job.id, job.stalled_count)
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(instructions["sleep"] / 2)
        if job.fence == 1 and instructions["later"]:
            raise RetryLater(instructions["later"])
        if job.fence == 1 and instructions["met"]:
            raise RateLimited(instructions["met"])
        if instructions["fatal"]:
            raise UnrecoverableError("instructed to fail for good")
        if job.attempts_made < instructions["failures"]:
            raise ValueError("instructed to fail first")
        return job.fence

    async def _note(self, job: Job[Payload, int]) -> None:
        update = asyncio.create_task(job.update_progress(job.fence))
        try:
            await asyncio.sleep(0)
            self._trap.pass_handler(RECORDING)
        finally:
            # Also when the run is cancelled: a lease that was lost is raised here and not in a forgotten task.
            await update
        self._trap.pass_handler(RECORDED)


def _write_outcomes(worker: Worker[Payload, int], journal: Journal) -> None:
    def listener(kind: str) -> Callable[..., None]:
        def write(job: Job[Payload, int], *_: object) -> None:
            journal.write(kind, job.id, job.fence, job.name)

        return write

    def write_error(error: Exception) -> None:
        journal.write("error", type(error).__name__, error)

    worker.on("completed", listener("completed"))
    worker.on("failed", listener("failed"))
    worker.on("retrying", listener("retrying"))
    worker.on("returned", listener("returned"))
    worker.on("lease_lost", listener("lost"))
    worker.on("error", write_error)


class AddOptions(TypedDict, total=False):
    """The options of an add that define how the job waits and how it is confirmed."""

    priority: int
    lifo: bool
    key: str
    cost: float
    ttl: float
    durability: Literal["default", "replicated"]


class Spec(TypedDict):
    """A job to add. With a custom id, it can be added again after an add of unknown outcome."""

    serial: int
    job_id: str | None
    delay: float | None
    payload: Payload
    name: NotRequired[str]
    options: NotRequired[AddOptions]


@dataclass(frozen=True)
class ProducerRole:
    """A process that adds jobs, several concurrently, and writes each acknowledged one to the journal.

    `pace`: seconds that each of the `tasks` waits between two adds. With `continues`, an add that ends in
    StorageUnavailable is written as `unsure`, and the next one follows.
    """

    url: str
    queue: str
    journal: Journal
    specs: list[Spec]
    tasks: int = 20
    point: str = ""
    nth: int = 1
    pace: float = 0.0
    continues: bool = False

    def __call__(self) -> None:
        """Add all jobs."""
        run_loop(self._add_all())

    async def _add_all(self) -> None:
        Trap(self.journal, self.point, self.nth)
        line = iter(self.specs)
        async with connect_to(self.url) as storage, Queue[Payload, int](self.queue, storage) as queue:
            await asyncio.gather(*(self._add_some(queue, line) for _ in range(self.tasks)))

    async def _add_some(self, queue: Queue[Payload, int], line: Any) -> None:
        for spec in line:
            try:
                job = await _add(queue, spec)
            except StorageUnavailable:
                if not self.continues:
                    raise
                self.journal.write("unsure", spec["serial"])
            else:
                self.journal.write("added", job.id, spec["serial"])
            if self.pace:
                await asyncio.sleep(self.pace)


async def _add(queue: Queue[Payload, int], spec: Spec) -> Job[Payload, int]:
    return await queue.add(
        spec.get("name", "work"),
        spec["payload"],
        job_id=spec["job_id"],
        delay=spec["delay"],
        attempts=3,
        backoff=0.05,
        keep_completed=KEEP_ALL,
        keep_failed=KEEP_ALL,
        **spec.get("options", {}),
    )


@dataclass(frozen=True)
class ReaderRole:
    """A process that writes every event of a queue to a file, until the queue is paused.

    A line: kind, job, time by the server's clock (ms), and the detail.
    """

    url: str
    queue: str
    events: Path

    def __call__(self) -> None:
        """Follow the events."""
        run_loop(self._follow(), fast=True)

    async def _follow(self) -> None:
        async with connect_to(self.url) as storage, QueueEvents(self.queue, storage, after="0") as events:
            with self.events.open("w") as out:
                async for event in events:
                    if isinstance(event, EventGap):
                        raise EventsMissedError(f"{event.missed} events were trimmed before they were read")
                    at = round(event.at.timestamp() * 1000)
                    out.write(f"{event.kind} {event.job_id or '-'} {at} {event.detail}\n")
                    if event.kind == "paused":
                        return
