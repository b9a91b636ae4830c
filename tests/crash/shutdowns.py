"""Orderly ends: workers get SIGTERM at any moment. They must be gone in time and leave nothing unfinished behind."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from dataclasses import dataclass, field

from glidemq_async import Queue
from tests.crash import checker
from tests.crash.journal import read_history
from tests.crash.queues import add_all, counts_of, pause
from tests.crash.roles import Payload, ReaderRole, Spec, WorkerRole, connect_to, payload
from tests.crash.room import Room, open_room

GRACES = (0.0, 0.2, 0.6)
LATE = 1.0
"""How much later than its grace a worker may end, and its unfinished jobs may be back, in seconds."""


@dataclass(frozen=True)
class Size:
    """How many shutdowns, and on how many queues at a time; `seconds` bounds the run."""

    shutdowns: int = 60
    lanes: int = 4
    seconds: float = 60.0


@dataclass
class Outcome:
    """How late workers ended, and what they left."""

    seed: int
    shutdowns: int = 0
    before_ready: int = 0
    late: list[float] = field(default_factory=list[float])
    handed_back: int = 0
    stalled: int = 0
    returned_late: list[float] = field(default_factory=list[float])
    jobs: int = 0
    broken: dict[str, int] = field(default_factory=dict[str, int])
    shown: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def faults(self) -> list[str]:
        """Which rules it breaks; [] is a pass."""
        rules = {
            f"a worker ended {max(self.late):.2f} s after its grace": max(self.late) <= LATE,
            f"jobs came back {max(self.returned_late):.2f} s after the end": max(self.returned_late) <= LATE,
            "no job was handed back, so nothing was shown": self.handed_back > 0,
            f"{self.stalled} jobs stalled instead of being handed back": self.stalled == 0,
            f"broken: {self.broken} {self.shown}": not self.broken,
        }
        return [fault for fault, passed in rules.items() if not passed]

    @property
    def line(self) -> str:
        """The run in one line."""
        return (
            f"shutdowns: {self.shutdowns} (and {self.before_ready} before the worker listened), latest end "
            f"{max(self.late):.2f} s after its grace, unfinished jobs back at most {max(self.returned_late):.2f} s "
            f"after the end, {self.jobs:,} jobs, {self.handed_back:,} times handed back, {self.stalled} stalled, "
            f"{sum(self.broken.values())} broken, {self.seconds:.0f} s, seed {self.seed}"
        )


class Lane:
    """One queue, one worker at a time on it, and a reader of its events."""

    def __init__(self, room: Room, number: int) -> None:
        self.queue = f"lane-{number}"
        self.events = room.directory / self.queue
        self.reader = room.herd.fork(ReaderRole(room.url, self.queue, self.events))
        self.worker = 0
        self.grace = 0.0
        self.term_at = 0.0


class Shutdowns:
    """One run."""

    def __init__(self, room: Room, size: Size, seed: int) -> None:
        self._room = room
        self._size = size
        self._random = random.Random(seed)
        self._deadline = time.monotonic() + size.seconds
        self._serial = 0
        self._lanes = [Lane(room, number) for number in range(size.lanes)]
        self.outcome = Outcome(seed)

    def run(self) -> None:
        """Round after round, on all lanes at once, until enough workers have ended in order; then prove it."""
        while self.outcome.shutdowns < self._size.shutdowns:
            for lane in self._lanes:
                asyncio.run(add_all(self._room.url, lane.queue, self._specs()))
                lane.grace = self._random.choice(GRACES)
                lane.worker = self._room.herd.fork(
                    WorkerRole(self._room.url, lane.queue, self._room.journal, lease=20.0, grace=lane.grace)
                )
                lane.term_at = time.monotonic() + self._random.uniform(0.0, 0.5)
            for lane in sorted(self._lanes, key=lambda lane: lane.term_at):
                time.sleep(max(0.0, lane.term_at - time.monotonic()))
                lane.term_at = time.monotonic()
                self._room.herd.send(lane.worker, signal.SIGTERM)
            self._await_ends({lane.worker: lane for lane in self._lanes})
        for lane in self._lanes:
            self._finish(lane)
        self._prove()

    def _specs(self) -> list[Spec]:
        specs: list[Spec] = []
        for _ in range(15):
            self._serial += 1
            # Some end at once, some within a grace, some only when they are cancelled.
            sleep = 30.0 if self._serial % 5 == 0 else self._random.choice([0.0, 0.05, self._random.uniform(0.1, 0.4)])
            specs.append({"serial": self._serial, "job_id": f"s{self._serial}", "delay": None, "told": payload(sleep)})
        return specs

    def _await_ends(self, lanes: dict[int, Lane]) -> None:
        while lanes:
            self._check_time()
            for ended in self._room.herd.reap(0.1):
                lane = lanes.pop(ended.pid)
                if ended.status == -signal.SIGTERM:
                    self.outcome.before_ready += 1
                elif ended.status:
                    raise RuntimeError(f"a worker ended with {ended.status}:\n{self._room.complaints}")
                else:
                    self.outcome.shutdowns += 1
                    self.outcome.late.append(ended.at - lane.term_at - lane.grace)
                    self._await_return(lane, ended.at)

    def _await_return(self, lane: Lane, ended: float) -> None:
        while asyncio.run(counts_of(self._room.url, lane.queue))["active"]:
            self._check_time()
        self.outcome.returned_late.append(time.monotonic() - ended)

    def _finish(self, lane: Lane) -> None:
        """The endless jobs are told to end, and then every job must come to its end."""
        asyncio.run(_shorten(self._room.url, lane.queue))
        worker = self._room.herd.fork(WorkerRole(self._room.url, lane.queue, self._room.journal, grace=5.0))
        while any(asyncio.run(counts_of(self._room.url, lane.queue)).values()):
            self._room.herd.reap(0.05)
            self._check_time()
        asyncio.run(pause(self._room.url, lane.queue))
        self._room.herd.send(worker, signal.SIGTERM)
        self._room.herd.wait_for(worker, 10)
        self._room.herd.wait_for(lane.reader, 10)

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise TimeoutError(f"not done in time: {self.outcome}\n{self._room.complaints}")

    def _prove(self) -> None:
        history, told, stock = read_history(self._room.journal), dict[str, checker.JobEvents](), checker.Stock()
        for lane in self._lanes:
            told |= checker.read_events(lane.events)
            stock.add(asyncio.run(checker.read_stock(self._room.url, lane.queue)))
        history.added = {f"s{number}" for number in range(1, self._serial + 1)}
        broken = checker.violations(history, told, stock)
        self.outcome.broken = checker.summarize(broken)
        self.outcome.shown = [" ".join(one) for one in broken[: checker.SHOWN]]
        self.outcome.jobs = self._serial
        self.outcome.handed_back = sum(one["returned"] for one in told.values())
        self.outcome.stalled = sum(one["stalled"] for one in told.values())


async def _shorten(url: str, queue_name: str) -> None:
    async with connect_to(url) as storage, Queue[Payload, int](queue_name, storage) as queue:
        async for job in queue.iter_jobs("waiting"):
            await job.update_data(payload(0.0))


def shutdowns(size: Size, seed: int = 0) -> Outcome:
    """Run on a server of our own."""
    began = time.monotonic()
    with open_room() as room:
        run = Shutdowns(room, size, seed)
        run.run()
    run.outcome.seconds = time.monotonic() - began
    return run.outcome
