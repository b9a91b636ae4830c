"""What the forked processes of a crash run do: work, add jobs, follow the events.

Each makes an event loop of its own and writes to the journal what happened. When they die is the driver's business.
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
#: A point of the handler itself; the others are the library's.
MID_HANDLER = "run.mid_handler"
# Nothing is moved to another queue here: relays that are cut off are tried in tests/conformance/test_outbox.py.
POINTS = sorted({name for name in failpoints.NAMES if not name.startswith("relay.")} | {MID_HANDLER})
ADD_POINTS = [point for point in POINTS if point.startswith("add.")]
SHUTDOWN_POINTS = [point for point in POINTS if point.startswith("shutdown.")]


class Payload(TypedDict):
    """What a job is told to do: sleep (seconds), fail that often first, fail for good, kill its process.

    In its first run it may ask to run `later`, or say that it `met` a limit outside: seconds, 0 for neither.
    """

    sleep: float
    failures: int
    fatal: bool
    poison: bool
    later: float
    met: float
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
    """The library that the processes of a run load: the testing build, so that switches keep their setting."""

    library = Library(loader.source(testing=True))


def break_library(old: str, new: str) -> None:
    """Let this process and its children load a library in which one statement is another."""
    text = loader.source(testing=True)
    if text.count(old) != 1:
        raise ValueError(f"found {text.count(old)} times, expected once in the Lua: {old!r}")
    _Text.library = Library(text.replace(old, new))


def connect_to(url: str) -> Storage:
    """The server of the run: the testing build on a socket and in a file, the released library elsewhere."""
    kind, _, path = url.partition("://")
    if kind == "file":
        return FileStorage(path, linger=1.0, testing=True)
    if kind == "unix":
        return RedisStorage(Endpoint(path=path), url, _Text.library)
    return open_storage(url)


def run_loop(main: Coroutine[Any, Any, None], *, fast: bool = False) -> None:
    """Run a coroutine in a loop of this process's own."""
    logging.disable(logging.WARNING)
    # Jobs that are told to fail for good do: that is no complaint.
    logging.getLogger("glidemq_async.worker.feedback").setLevel(logging.CRITICAL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if fast else None) as runner:
        runner.run(main)


class Trap:
    """Kills this process when a point is passed for the n-th time, and says so before."""

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

    def pass_handler(self) -> None:
        """The handler is in the middle of its work."""
        if self._point == MID_HANDLER:
            self._passed()


@dataclass(frozen=True)
class WorkerRole:
    """A worker process; `point` and `nth` say where it kills itself ("" = nowhere)."""

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
    """The reader of the events was too slow, so nothing can be proven."""


class Handler:
    """Does what a job's payload says."""

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
        told = job.data
        await asyncio.sleep(told["sleep"] / 2)
        self._trap.pass_handler()
        if told["poison"]:
            self._journal.write("poison", job.id, job.stalled_count)
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(told["sleep"] / 2)
        if job.fence == 1 and told["later"]:
            raise RetryLater(told["later"])
        if job.fence == 1 and told["met"]:
            raise RateLimited(told["met"])
        if told["fatal"]:
            raise UnrecoverableError("told to fail for good")
        if job.attempts_made < told["failures"]:
            raise ValueError("told to fail first")
        return job.fence


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


class Standing(TypedDict, total=False):
    """How a job waits, as options of an add."""

    priority: int
    lifo: bool
    key: str
    cost: float
    ttl: float
    durability: Literal["default", "replicated"]


class Spec(TypedDict):
    """A job to add; with an id of its own it can be added again after an add of unknown outcome."""

    serial: int
    job_id: str | None
    delay: float | None
    told: Payload
    name: NotRequired[str]
    stands: NotRequired[Standing]


@dataclass(frozen=True)
class ProducerRole:
    """A process that adds jobs, many at once, and writes down each one that was acknowledged.

    `pace`: seconds that each of the `at_once` waits between two adds. With `goes_on`, an add that ends in
    StorageUnavailable is written down as `unsure`, and the next one follows.
    """

    url: str
    queue: str
    journal: Journal
    specs: list[Spec]
    at_once: int = 20
    point: str = ""
    nth: int = 1
    pace: float = 0.0
    goes_on: bool = False

    def __call__(self) -> None:
        """Add them all."""
        run_loop(self._add_all())

    async def _add_all(self) -> None:
        Trap(self.journal, self.point, self.nth)
        line = iter(self.specs)
        async with connect_to(self.url) as storage, Queue[Payload, int](self.queue, storage) as queue:
            await asyncio.gather(*(self._add_some(queue, line) for _ in range(self.at_once)))

    async def _add_some(self, queue: Queue[Payload, int], line: Any) -> None:
        for spec in line:
            try:
                job = await _add(queue, spec)
            except StorageUnavailable:
                if not self.goes_on:
                    raise
                self.journal.write("unsure", spec["serial"])
            else:
                self.journal.write("added", job.id, spec["serial"])
            if self.pace:
                await asyncio.sleep(self.pace)


async def _add(queue: Queue[Payload, int], spec: Spec) -> Job[Payload, int]:
    return await queue.add(
        spec.get("name", "work"),
        spec["told"],
        job_id=spec["job_id"],
        delay=spec["delay"],
        attempts=3,
        backoff=0.05,
        keep_completed=KEEP_ALL,
        keep_failed=KEEP_ALL,
        **spec.get("stands", {}),
    )


@dataclass(frozen=True)
class ReaderRole:
    """A process that writes every event of a queue to a file, until the queue is paused.

    A line: kind, job, when by the server's clock (ms), and the detail.
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
