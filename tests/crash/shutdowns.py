"""Graceful shutdowns: workers get SIGTERM at any time. They must end in time and leave no unfinished job behind."""

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
from tests.crash.workspace import ServerWorkspace, open_workspace

GRACES = (0.0, 0.2, 0.6)
LATE = 1.0
"""The seconds by which a worker may exceed its grace, and within which its unfinished jobs must wait again."""


@dataclass(frozen=True)
class Size:
    """The number of shutdowns, and of queues used concurrently; `seconds` bounds the run."""

    shutdowns: int = 60
    queues: int = 4
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
        """Return the rules that it breaks; an empty list is a pass."""
        rules = {
            f"a worker ended {max(self.late):.2f} s after its grace": max(self.late) <= LATE,
            f"released jobs waited again only {max(self.returned_late):.2f} s after the end": max(self.returned_late)
            <= LATE,
            "no job was released, so the run proves nothing": self.handed_back > 0,
            f"{self.stalled} jobs stalled instead of being released": self.stalled == 0,
            f"broken: {self.broken} {self.shown}": not self.broken,
        }
        return [fault for fault, passed in rules.items() if not passed]

    @property
    def line(self) -> str:
        """Return the summary of the run in one line."""
        return (
            f"shutdowns: {self.shutdowns} (and {self.before_ready} before the worker listened), latest end "
            f"{max(self.late):.2f} s after its grace, jobs wait again at most {max(self.returned_late):.2f} s "
            f"after the end, {self.jobs:,} jobs, {self.handed_back:,} releases, {self.stalled} stalled, "
            f"{sum(self.broken.values())} broken, {self.seconds:.0f} s, seed {self.seed}"
        )


class TestedQueue:
    """One queue, one worker at a time on it, and a reader of its events."""

    def __init__(self, workspace: ServerWorkspace, number: int) -> None:
        self.queue = f"queue-{number}"
        self.events = workspace.directory / self.queue
        self.reader = workspace.children.fork(ReaderRole(workspace.url, self.queue, self.events))
        self.worker = 0
        self.grace = 0.0
        self.term_at = 0.0


class Shutdowns:
    """One run."""

    def __init__(self, workspace: ServerWorkspace, size: Size, seed: int) -> None:
        self._workspace = workspace
        self._size = size
        self._random = random.Random(seed)
        self._deadline = time.monotonic() + size.seconds
        self._serial = 0
        self._tested = [TestedQueue(workspace, number) for number in range(size.queues)]
        self.outcome = Outcome(seed)

    def run(self) -> None:
        """Repeat on all queues concurrently until enough workers have shut down, then check the run."""
        while self.outcome.shutdowns < self._size.shutdowns:
            for tested in self._tested:
                asyncio.run(add_all(self._workspace.url, tested.queue, self._specs()))
                tested.grace = self._random.choice(GRACES)
                tested.worker = self._workspace.children.fork(
                    WorkerRole(
                        self._workspace.url, tested.queue, self._workspace.journal, lease=20.0, grace=tested.grace
                    )
                )
                tested.term_at = time.monotonic() + self._random.uniform(0.0, 0.5)
            for tested in sorted(self._tested, key=lambda tested: tested.term_at):
                time.sleep(max(0.0, tested.term_at - time.monotonic()))
                tested.term_at = time.monotonic()
                self._workspace.children.send(tested.worker, signal.SIGTERM)
            self._await_ends({tested.worker: tested for tested in self._tested})
        for tested in self._tested:
            self._finish(tested)
        self._prove()

    def _specs(self) -> list[Spec]:
        specs: list[Spec] = []
        for _ in range(15):
            self._serial += 1
            # Some jobs end immediately, some within a grace, some only when they are cancelled.
            sleep = 30.0 if self._serial % 5 == 0 else self._random.choice([0.0, 0.05, self._random.uniform(0.1, 0.4)])
            specs.append(
                {"serial": self._serial, "job_id": f"s{self._serial}", "delay": None, "payload": payload(sleep)}
            )
        return specs

    def _await_ends(self, running: dict[int, TestedQueue]) -> None:
        while running:
            self._check_time()
            for ended in self._workspace.children.reap(0.1):
                tested = running.pop(ended.pid)
                if ended.status == -signal.SIGTERM:
                    self.outcome.before_ready += 1
                elif ended.status:
                    raise RuntimeError(f"a worker ended with {ended.status}:\n{self._workspace.complaints}")
                else:
                    self.outcome.shutdowns += 1
                    self.outcome.late.append(ended.at - tested.term_at - tested.grace)
                    self._await_return(tested, ended.at)

    def _await_return(self, tested: TestedQueue, ended: float) -> None:
        while asyncio.run(counts_of(self._workspace.url, tested.queue))["active"]:
            self._check_time()
        self.outcome.returned_late.append(time.monotonic() - ended)

    def _finish(self, tested: TestedQueue) -> None:
        """Make the endless jobs end, then check that every job has ended."""
        asyncio.run(_shorten(self._workspace.url, tested.queue))
        worker = self._workspace.children.fork(
            WorkerRole(self._workspace.url, tested.queue, self._workspace.journal, grace=5.0)
        )
        while any(asyncio.run(counts_of(self._workspace.url, tested.queue)).values()):
            self._workspace.children.reap(0.05)
            self._check_time()
        asyncio.run(pause(self._workspace.url, tested.queue))
        self._workspace.children.send(worker, signal.SIGTERM)
        self._workspace.children.wait_for(worker, 10)
        self._workspace.children.wait_for(tested.reader, 10)

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise TimeoutError(f"not done in time: {self.outcome}\n{self._workspace.complaints}")

    def _prove(self) -> None:
        history, counts, final_state = (
            read_history(self._workspace.journal),
            dict[str, checker.JobEvents](),
            checker.FinalState(),
        )
        for tested in self._tested:
            counts |= checker.read_events(tested.events)
            final_state.add(asyncio.run(checker.read_final_state(self._workspace.url, tested.queue)))
        history.added = {f"s{number}" for number in range(1, self._serial + 1)}
        broken = checker.violations(history, counts, final_state)
        self.outcome.broken = checker.summarize(broken)
        self.outcome.shown = [" ".join(one) for one in broken[: checker.SHOWN]]
        self.outcome.jobs = self._serial
        self.outcome.handed_back = sum(one["returned"] for one in counts.values())
        self.outcome.stalled = sum(one["stalled"] for one in counts.values())


async def _shorten(url: str, queue_name: str) -> None:
    async with connect_to(url) as storage, Queue[Payload, int](queue_name, storage) as queue:
        async for job in queue.iter_jobs("waiting"):
            await job.update_data(payload(0.0))


def shutdowns(size: Size, seed: int = 0) -> Outcome:
    """Run on a new server."""
    began = time.monotonic()
    with open_workspace() as workspace:
        run = Shutdowns(workspace, size, seed)
        run.run()
    run.outcome.seconds = time.monotonic() - began
    return run.outcome
