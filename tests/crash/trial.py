"""A trial: workers and producers of one queue run while something disturbs their server or their link to it.

The scenario disturbs. The trial starts and kills the processes, and compares their journal with the store. The name of
each job is its serial number, so that a new job with the id of a lost one is recognized.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from tests.crash import checker
from tests.crash.checker import DELAYED_AGAIN, GIVEN_UP, FinalState, JobEvents, Violation
from tests.crash.journal import FINAL_KINDS, History, Line, read_lines
from tests.crash.queues import counts_of, pause
from tests.crash.replay import Event, read_server_events
from tests.crash.roles import ProducerRole, ReaderRole, Spec, WorkerRole
from tests.crash.workspace import Workspace

MAX_STALLED = 12
"""Stalls after which a job fails. The few kills of a trial never hit one job that often."""


@dataclass(frozen=True)
class Crew:
    """The workers of a trial. One of them is killed every `kill_every` seconds, on average."""

    workers: int = 3
    concurrency: int = 10
    lease: float = 1.0
    poll: float = 5.0
    kill_every: float = 0.5


@dataclass
class Figures:
    """The figures of one or more trials, and everything that they broke."""

    seed: int
    jobs: int = 0
    kills: int = 0
    runs: int = 0
    redeliveries: int = 0
    refused: int = 0
    """Outcomes and leases of live workers that the store did not accept."""
    expired: int = 0
    longest_gap: float = 0.0
    """Seconds between two starts during the trial."""
    broken: dict[str, int] = field(default_factory=dict[str, int])
    shown: list[str] = field(default_factory=list[str])
    complaints: str = ""
    seconds: float = 0.0

    def base_faults(self) -> dict[str, bool]:
        """Return the rules of all trials that it breaks."""
        return {
            "no worker was killed": self.kills > 0,
            f"children complained: {self.complaints[-2000:]}": not self.complaints,
            f"broken: {self.broken} {self.shown}": not self.broken,
        }

    def faults(self) -> list[str]:
        """Return the rules that it breaks; an empty list is a pass."""
        return [fault for fault, passed in self.base_faults().items() if not passed]

    @property
    def counts(self) -> str:
        """Return the figures of every trial in one line."""
        return (
            f"{self.jobs:,} acknowledged jobs, {self.runs:,} runs, {self.kills} workers killed, "
            f"{self.redeliveries:,} redeliveries, {self.refused} refused, {self.broken.get('lost', 0)} lost, "
            f"{self.broken.get('doubled', 0)} doubled, {self.broken.get('not run', 0)} ended without a run, "
            f"{self.broken.get('failed', 0)} failed, {sum(self.broken.values())} broken in all, "
            f"{self.longest_gap:.1f} s at most between starts, {self.seconds:.0f} s, seed {self.seed}"
        )


@dataclass
class Evidence:
    """The data of a finished trial: the journal of its processes, the events and the store."""

    lines: list[Line]
    events: dict[str, JobEvents]
    final_state: FinalState

    def added(self) -> Iterable[tuple[str, str, float]]:
        """Each acknowledged job: its id, its serial number, and the time when its add returned."""
        return ((line.words[0], line.words[1], line.at) for line in self.lines if line.kind == "added")


class Trial:
    """One queue, its workers and producers. They connect to `url`; the parent uses `near`."""

    def __init__(
        self, base: Workspace, queue: str, url: str, figures: Figures, crew: Crew, deadline: float, near: str = ""
    ) -> None:
        self.queue = queue
        self.url = url
        self.random = random.Random(f"{figures.seed} {queue}")
        self._near = near or url
        self._workspace = base
        self._figures = figures
        self._crew = crew
        self._deadline = deadline
        self._workers: set[int] = set()
        self._producers: set[int] = set()
        self._skipped = len(read_lines(base.journal))
        self._reader = base.journal.reader()
        self._next_kill = float("inf")
        self._is_first_kill_planned = False

    def start(self) -> None:
        """Start the workers. One of them is killed now and then, from the first start of a job on."""
        for _ in self._reader.new_lines():
            pass
        self._hire()

    def produce(self, specs: list[Spec], *, tasks: int = 5, pace: float = 0.0) -> None:
        """Start a process that adds these jobs."""
        role = ProducerRole(
            self.url, self.queue, self._workspace.journal, specs, tasks=tasks, pace=pace, continues=True
        )
        self.run_to_end(role)

    def run_to_end(self, role: Callable[[], None]) -> None:
        """Start another process that adds jobs."""
        self._producers.add(self._workspace.children.fork(role))

    @property
    def is_producing(self) -> bool:
        """Return whether a process is adding jobs."""
        return bool(self._producers)

    def await_first_start(self) -> None:
        """Let the processes run until a job has started."""
        self.continue_until(lambda: self._is_first_kill_planned)

    def continue_for(self, seconds: float) -> None:
        """Let the processes run for this time."""
        until = time.monotonic() + seconds
        self.continue_until(lambda: time.monotonic() >= until, min(seconds, 0.05))

    def continue_until(self, enough: Callable[[], bool], step: float = 0.05) -> None:
        """Let the processes run until the condition holds, and kill a worker now and then."""
        while not enough():
            self._reap(step)
            self._plan_first_kill()
            if self._workers and time.monotonic() >= self._next_kill:
                victim = self.random.choice(sorted(self._workers))
                self._workspace.children.send(victim, signal.SIGKILL)
                self._plan_kill()
            self._check_time()

    def finish(
        self,
        also: Callable[[Evidence], Iterable[Violation]] | None = None,
        excused: Callable[[Violation], bool] = lambda _: False,
    ) -> Evidence:
        """Wait until no job is left, stop the workers, and check the run."""
        # A trial without a kill would prove nothing.
        self.continue_until(lambda: not self._producers and self._figures.kills > 0)
        self._next_kill, self._is_first_kill_planned = float("inf"), True
        self._reader.close()
        self.continue_until(lambda: not any(asyncio.run(counts_of(self._near, self.queue)).values()), 0.1)
        workers, self._workers = self._workers, set()
        for worker in workers:
            self._workspace.children.send(worker, signal.SIGTERM)
        for worker in workers:
            self._workspace.children.wait_for(worker, 15)
            if worker in self._workspace.children.alive:
                raise TimeoutError(f"a worker did not end:\n{self._workspace.complaints}")
        evidence = self._collect()
        self._evaluate(evidence, also, excused)
        return evidence

    # -- the children ---------------------------------------------------------------------------------------------

    def _hire(self) -> None:
        crew = self._crew
        while len(self._workers) < crew.workers:
            role = WorkerRole(
                self.url,
                self.queue,
                self._workspace.journal,
                concurrency=crew.concurrency,
                lease=crew.lease,
                max_stalled=MAX_STALLED,
                grace=5.0,
                poll=crew.poll,
            )
            self._workers.add(self._workspace.children.fork(role))

    def _plan_first_kill(self) -> None:
        """Plan the first kill soon after the first start of a job. On a busy machine, workers start slowly."""
        if not self._is_first_kill_planned and any(line.kind == "start" for line in self._reader.new_lines()):
            self._next_kill = time.monotonic() + self.random.uniform(0.0, 0.5) * self._crew.kill_every
            self._is_first_kill_planned = True

    def _plan_kill(self) -> None:
        self._next_kill = time.monotonic() + self.random.uniform(0.5, 1.5) * self._crew.kill_every

    def _reap(self, patience: float) -> None:
        for ended in self._workspace.children.reap(max(patience, 0.001)):
            if ended.pid in self._workers:
                self._workers.discard(ended.pid)
                if ended.status != -signal.SIGKILL:
                    raise RuntimeError(f"a worker ended with {ended.status}:\n{self._workspace.complaints}")
                self._figures.kills += 1
                self._hire()
            elif ended.pid in self._producers:
                self._producers.discard(ended.pid)
                if ended.status:
                    raise RuntimeError(f"a producer ended with {ended.status}:\n{self._workspace.complaints}")
            else:
                raise RuntimeError(f"another child ended with {ended.status}:\n{self._workspace.complaints}")

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            counts = asyncio.run(counts_of(self._near, self.queue))
            raise TimeoutError(f"{self.queue} is not done in time: {counts}\n{self._workspace.complaints}")

    # -- the proof ------------------------------------------------------------------------------------------------

    def _collect(self) -> Evidence:
        path = self._workspace.directory / f"events-{self.queue}"
        asyncio.run(pause(self._near, self.queue))
        reader = self._workspace.children.fork(ReaderRole(self._near, self.queue, path))
        ended = self._workspace.children.wait_for(reader, 30)
        if ended is None or ended.status:
            raise RuntimeError(f"the events were not read: {ended}\n{self._workspace.complaints}")
        final_state = asyncio.run(checker.read_final_state(self._near, self.queue))
        events = count_events(read_server_events(path))
        return Evidence(read_lines(self._workspace.journal)[self._skipped :], events, final_state)

    def _evaluate(
        self,
        evidence: Evidence,
        also: Callable[[Evidence], Iterable[Violation]] | None,
        excused: Callable[[Violation], bool],
    ) -> None:
        history = History()
        for line in evidence.lines:
            history.take(line)
        found = [
            one for one in checker.violations(history, evidence.events, evidence.final_state) if one.kind != "lost"
        ]
        found += losses(evidence)
        found += failures(evidence)
        if also is not None:
            found += also(evidence)
        found = [one for one in found if not excused(one)]
        figures = self._figures
        for kind, count in checker.summarize(found).items():
            figures.broken[kind] = figures.broken.get(kind, 0) + count
        figures.shown += [" ".join(one) for one in found[: checker.SHOWN]]
        figures.jobs += len(list(evidence.added()))
        figures.runs += sum(len(starts) for starts in history.starts.values())
        figures.redeliveries += sum(counts["stalled"] for counts in evidence.events.values())
        figures.refused += history.refused
        figures.expired += sum(one.reason == "expired" for one in evidence.final_state.ended.values())
        starts = [line.at for line in evidence.lines if line.kind == "start"]
        gap = max((after - before for before, after in pairwise(starts)), default=0.0)
        figures.longest_gap = max(figures.longest_gap, gap)
        figures.complaints = self._workspace.complaints


def count_events(history: Iterable[Event]) -> dict[str, JobEvents]:
    """Count the events of each job. Delays of handlers and failures by the server are separate kinds."""
    found: dict[str, JobEvents] = {}
    running: set[str] = set()
    for event in history:
        counts = found.setdefault(event.job, JobEvents())
        counts[event.kind] += 1
        if event.kind == "delayed" and event.job in running:
            counts[DELAYED_AGAIN] += 1
        if event.kind == "failed" and event.job not in running:
            counts[GIVEN_UP] += 1
        if event.kind == "active":
            running.add(event.job)
        elif event.kind != "waiting":
            running.discard(event.job)
    return found


def losses(evidence: Evidence) -> Iterable[Violation]:
    """Return acknowledged jobs that the store does not have in a final state."""
    ended = evidence.final_state.ended
    for job, serial, _ in evidence.added():
        if job not in ended:
            yield Violation("lost", job, f"job {serial} was added, but is not in a final state")
        elif ended[job].name != serial:
            yield Violation("lost", job, f"job {serial} was added, but its id belongs to job {ended[job].name}")


def failures(evidence: Evidence) -> Iterable[Violation]:
    """Return jobs that failed although no handler raised and no kill targeted them, and ends that belong to another
    job.
    """
    for job, stored in evidence.final_state.ended.items():
        if stored.state != "completed" and stored.reason != "expired":
            yield Violation("failed", job, f"{stored}: {dict(evidence.events.get(job, {}))}")
    for line in evidence.lines:
        if line.kind in FINAL_KINDS:
            job, _, name = line.words
            if job in evidence.final_state.ended and evidence.final_state.ended[job].name != name:
                yield Violation(
                    "strange", job, f"an outcome of job {name} was accepted, but the id now belongs to another job"
                )
