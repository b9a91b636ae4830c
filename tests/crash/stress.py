"""The stress run: workers and producers die all the time, some sleep past their leases, and every job must end once.

The parent forks, kills and reaps. It runs no event loop while children live. checker.py checks the run.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tests.crash import checker
from tests.crash.journal import FINAL_KINDS, History, JournalReader
from tests.crash.queues import counts_of, pause, switch_fencing_off
from tests.crash.roles import (
    ADD_POINTS,
    POINTS,
    SHUTDOWN_POINTS,
    ProducerRole,
    ReaderRole,
    Spec,
    WorkerRole,
    payload,
)
from tests.crash.workspace import ServerWorkspace, open_workspace

LEASE = 1.0
IDLE_SECONDS = 4.0
"""Seconds after which a worker is killed that has not started a job. The deaths of others are relative to that start.
"""
WORKER_POINTS = [point for point in POINTS if point not in ADD_POINTS]
#: A worker may end by SIGTERM itself if the signal came before it installed its handler.
ENDED_WELL = (0, -signal.SIGTERM)
Fate: TypeAlias = Literal["random", "point", "stop", "zombie"]


@dataclass(frozen=True)
class Size:
    """The size of a run; `seconds` bounds all of it.

    With `everywhere`, the run continues until a process has died at each failpoint.
    """

    jobs: int = 20_000
    kills: int = 1_000
    zombies: int = 25
    workers: int = 7
    concurrency: int = 20
    batch: int = 250
    seconds: float = 240.0
    fenced: bool = True
    everywhere: bool = False


@dataclass
class Outcome:
    """The figures of a run, and everything that it broke."""

    seed: int
    wanted_kills: int = 0
    """Kills that the size of the run demands. At least half as many must hit a worker with running jobs."""
    jobs: int = 0
    kills: int = 0
    kills_with_work: int = 0
    producers_killed: int = 0
    zombies: int = 0
    refused: int = 0
    redeliveries: int = 0
    runs: int = 0
    seconds: float = 0.0
    points: dict[str, int] = field(default_factory=dict[str, int])
    broken: dict[str, int] = field(default_factory=dict[str, int])
    shown: list[str] = field(default_factory=list[str])
    complaints: str = ""

    def faults(self) -> list[str]:
        """Return the reasons why this run proves nothing, or the rules that it breaks; an empty list is a pass."""
        never_hit = [point for point in POINTS if not self.points.get(point)]
        rules = {
            f"no process died at {', '.join(never_hit)}": not never_hit,
            "few kills hit a worker with running jobs": self.kills_with_work * 2 >= self.wanted_kills,
            "no zombie had an outcome refused": self.refused > 0,
            f"children complained: {self.complaints[-2000:]}": not self.complaints,
            f"broken: {self.broken} {self.shown}": not self.broken,
        }
        return [fault for fault, passed in rules.items() if not passed]

    @property
    def line(self) -> str:
        """Return the summary of the run in one line."""
        return (
            f"crash stress: {self.kills:,} kills ({self.kills_with_work:,} with running jobs), {self.zombies} zombies, "
            f"{self.jobs:,} jobs, {self.runs:,} runs, {self.redeliveries:,} redeliveries, {self.refused:,} refused, "
            f"{self.broken.get('lost', 0)} lost, {self.broken.get('doubled', 0)} doubled, "
            f"{sum(self.broken.values())} broken in all, {self.seconds:.0f} s, seed {self.seed}"
        )


class Stress:
    """One run."""

    queue = "stress"

    def __init__(self, workspace: ServerWorkspace, size: Size, outcome: Outcome) -> None:
        self._workspace = workspace
        self._size = size
        self._random = random.Random(outcome.seed)
        self._plan: list[tuple[float, int, signal.Signals]] = []
        self._workers: dict[int, Fate] = {}
        self._idle: set[int] = set()
        self._producers: dict[int, list[Spec]] = {}
        self._points = _Turns(WORKER_POINTS, self._random)
        self._add_points = _Turns(ADD_POINTS, self._random)
        self._again: list[Spec] = []
        self._serial = 0
        self._acknowledged: set[str] = set()
        self._next_look = 0.0
        self._doubled = 0
        self._reader: JournalReader = workspace.journal.reader()
        self._deadline = time.monotonic() + size.seconds
        self.history = History()
        self.outcome = outcome
        outcome.wanted_kills = size.kills

    def _missed(self) -> set[str]:
        """Return the failpoints at which a run that continues for them must still see a death."""
        late = self._size.everywhere and not self._has_to_continue()
        return {*POINTS} - self.history.points.keys() if late else set()

    # -- the children ---------------------------------------------------------------------------------------------

    def disturb(self) -> None:
        """Kill until enough processes have died and enough jobs were added, then let the others end undisturbed."""
        events = self._workspace.directory / "events"
        reader = self._workspace.children.fork(ReaderRole(self._workspace.url, self.queue, events))
        while self._has_to_continue() or self._is_inconclusive():
            self._top_up()
            self._carry_out()
            self._reap()
            self._read()
            self._check_time()
        self._end_children(reader)
        self._finish_remaining_jobs()
        asyncio.run(pause(self._workspace.url, self.queue))
        if self._workspace.children.wait_for(reader, 20) is None:
            raise TimeoutError("the reader of the events did not reach the end")

    def _has_to_continue(self) -> bool:
        outcome, size = self.outcome, self._size
        enough = outcome.kills >= size.kills and outcome.zombies >= size.zombies
        return not enough or len(self._acknowledged) < size.jobs or bool(self._again)

    def _is_inconclusive(self) -> bool:
        """Return whether a run of full size must continue, because processes have not died in all required situations.

        On a busy machine, workers start slowly. More of them then die before they have run a job.
        """
        size, history = self._size, self.history
        if size.everywhere and not history.points.keys() >= set(POINTS):
            return True
        late_outcome = history.refused if size.fenced else self._doubled
        return not late_outcome or self.outcome.kills_with_work * 2 < size.kills

    def _top_up(self) -> None:
        while len(self._workers) < self._size.workers:
            self._start_worker()
        share = max(self.outcome.kills / self._size.kills, self.outcome.zombies / max(1, self._size.zombies))
        behind = len(self._acknowledged) < min(self._size.jobs, self._size.jobs * share + 2 * self._size.batch)
        if not self._producers and (behind or self._again or self._is_short_of_jobs()):
            self._start_producer()

    def _is_short_of_jobs(self) -> bool:
        """Return whether a run that has added all its jobs, and continues, needs more of them."""
        if len(self._acknowledged) < self._size.jobs or time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + 0.5
        return sum(asyncio.run(counts_of(self._workspace.url, self.queue)).values()) < self._size.batch

    def _start_worker(self) -> None:
        fate = self._choose_fate()
        point = ""
        if fate == "point":
            point = self._points.next(self._missed())
            fate = "zombie" if point == "renew.lost" else "stop" if point in SHUTDOWN_POINTS else fate
        role = WorkerRole(
            self._workspace.url,
            self.queue,
            self._workspace.journal,
            concurrency=self._size.concurrency,
            lease=LEASE,
            grace=self._random.choice([0.0, 0.1, 0.5]),
            point=point,
            nth=self._random.choice([1, 1, 2, 3]) if fate == "point" else 1,
            fast=self._random.random() < 0.5,
        )
        pid = self._workspace.children.fork(role)
        self._workers[pid] = fate
        if fate == "random":
            self._at(time.monotonic() + self._random.uniform(0.1, 0.9), pid, signal.SIGKILL)
        else:
            self._idle.add(pid)
            self._at(time.monotonic() + IDLE_SECONDS, pid, signal.SIGKILL)

    def _choose_fate(self) -> Fate:
        size, outcome = self._size, self.outcome
        planned = outcome.zombies + sum(fate == "zombie" for fate in self._workers.values())
        if planned < size.zombies * max(0.1, outcome.kills / size.kills):
            return "zombie"
        return self._random.choices(("random", "point", "stop"), (45, 50, 5))[0]

    def _plan_death(self, pid: int, fate: Fate) -> None:
        """Plan the death of a worker that starts its first job now."""
        at, draw = time.monotonic(), self._random.uniform
        if fate == "point":
            self._at(at + 1.2, pid, signal.SIGKILL)
        elif fate == "stop":
            at += draw(0.0, 0.5)
            self._at(at, pid, signal.SIGTERM)
            self._at(at + 5.0, pid, signal.SIGKILL)
        else:
            at += draw(0.0, 0.3)
            self._at(at, pid, signal.SIGSTOP)
            at += draw(1.3, 2.0) * LEASE
            self._at(at, pid, signal.SIGCONT)
            self._at(at + draw(0.3, 0.8), pid, signal.SIGKILL)

    def _at(self, at: float, pid: int, number: signal.Signals) -> None:
        heapq.heappush(self._plan, (at, pid, number))

    def _carry_out(self) -> None:
        while self._plan and self._plan[0][0] <= time.monotonic():
            _, pid, number = heapq.heappop(self._plan)
            if self._workspace.children.send(pid, number) and number == signal.SIGCONT:
                self.outcome.zombies += 1

    def _reap(self) -> None:
        rest = self._plan[0][0] - time.monotonic() if self._plan else 0.05
        for ended in self._workspace.children.reap(min(max(rest, 0.001), 0.05)):
            if ended.pid in self._producers:
                self._producer_ended(ended.pid, ended.status)
            elif ended.pid in self._workers:
                self._read()
                del self._workers[ended.pid]
                self._idle.discard(ended.pid)
                if ended.status == -signal.SIGKILL:
                    self.outcome.kills += 1
                    self.outcome.kills_with_work += self.history.in_hand.get(ended.pid, 0) > 0
                elif ended.status not in ENDED_WELL:
                    raise RuntimeError(f"a worker ended with {ended.status}:\n{self._workspace.complaints}")
            else:
                raise RuntimeError(f"a child ended without a signal:\n{self._workspace.complaints}")

    # -- adding ---------------------------------------------------------------------------------------------------

    def _start_producer(self) -> None:
        specs, self._again = self._again, []
        specs += [self._new_spec() for _ in range(self._size.batch - len(specs))]
        missed = self._missed()
        dies = self._random.random() < 0.3 or bool(missed & {*ADD_POINTS})
        role = ProducerRole(
            self._workspace.url,
            self.queue,
            self._workspace.journal,
            specs,
            point=self._add_points.next(missed) if dies else "",
            nth=self._random.randint(1, 6),
        )
        pid = self._workspace.children.fork(role)
        self._producers[pid] = specs
        self._at(time.monotonic() + 20.0, pid, signal.SIGKILL)

    def _new_spec(self) -> Spec:
        draw = self._random
        self._serial += 1
        sleep = draw.choices((0.0, draw.uniform(0.01, 0.1), draw.uniform(0.1, 0.6)), (20, 50, 30))[0]
        instructions = payload(sleep, failures=draw.choices((0, 1, 2, 3), (90, 6, 2, 2))[0], fatal=draw.random() < 0.02)
        instructions["noted"] = draw.random() < 0.3
        return {
            "serial": self._serial,
            # Half of the jobs have a custom id. Numbers among them make the server skip generated ids.
            "job_id": draw.choice([None, f"own-{self._serial}"]),
            "delay": draw.uniform(0.01, 1.0) if draw.random() < 0.05 else None,
            "payload": instructions,
        }

    def _producer_ended(self, pid: int, status: int) -> None:
        specs = self._producers.pop(pid)
        self._read()
        # An add of unknown outcome is repeated with its id. The job may then turn out to exist.
        self._again = [spec for spec in specs if str(spec["serial"]) not in self._acknowledged]
        if status == -signal.SIGKILL:
            self.outcome.producers_killed += 1
        elif status:
            raise RuntimeError(f"a producer ended with {status}:\n{self._workspace.complaints}")
        elif self._again:
            raise RuntimeError(f"a producer has ended, but {len(self._again)} of its adds were not acknowledged")

    def _read(self) -> None:
        for line in self._reader.new_lines():
            self.history.take(line)
            if line.kind == "added":
                self._acknowledged.add(line.words[1])
            elif line.kind == "start" and line.pid in self._idle:
                self._idle.discard(line.pid)
                self._plan_death(line.pid, self._workers[line.pid])
            elif line.kind in FINAL_KINDS:
                self._doubled += len(self.history.finals[line.words[0]]) > 1

    # -- the end --------------------------------------------------------------------------------------------------

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            counts = asyncio.run(counts_of(self._workspace.url, self.queue))
            raise TimeoutError(
                f"not done within {self._size.seconds:g} s: {self.outcome.kills} kills, "
                f"{len(self._acknowledged)} jobs, {counts}\n{self._workspace.complaints}"
            )

    def _end_children(self, reader: int) -> None:
        for pid in self._workspace.children.alive - {reader}:
            self._workspace.children.send(pid, signal.SIGKILL)
        self._idle.clear()
        while self._workers or self._producers:
            self._plan.clear()
            for ended in self._workspace.children.reap(0.05):
                self.outcome.kills += self._workers.pop(ended.pid, None) is not None
                self._producers.pop(ended.pid, None)
            self._check_time()

    def _finish_remaining_jobs(self) -> None:
        """Let two undisturbed workers finish the remaining jobs."""
        role = WorkerRole(
            self._workspace.url, self.queue, self._workspace.journal, concurrency=100, lease=LEASE, grace=5.0
        )
        workers = [self._workspace.children.fork(role) for _ in range(2)]
        # Without fencing a job may complete twice, and the number of waiting jobs is then below zero.
        while any(count > 0 for count in asyncio.run(counts_of(self._workspace.url, self.queue)).values()):
            self._workspace.children.reap(0.1)
            self._check_time()
        for pid in workers:
            self._workspace.children.send(pid, signal.SIGTERM)
        for pid in workers:
            ended = self._workspace.children.wait_for(pid, 10)
            if ended is not None and ended.status not in ENDED_WELL:
                raise RuntimeError(f"an undisturbed worker ended with {ended.status}:\n{self._workspace.complaints}")

    def verify(self) -> None:
        """Compare the journal, the events and the store."""
        self._prove(checker.read_events(self._workspace.directory / "events"))

    def _prove(self, events: dict[str, checker.JobEvents]) -> None:
        self._read()
        history, outcome = self.history, self.outcome
        final_state = asyncio.run(checker.read_final_state(self._workspace.url, self.queue))
        broken = [*checker.violations(history, events, final_state), *self._more_violations()]
        outcome.broken = checker.summarize(broken)
        outcome.shown = [" ".join(one) for one in broken[: checker.SHOWN]]
        outcome.jobs = len(history.added)
        outcome.runs = sum(len(starts) for starts in history.starts.values())
        outcome.redeliveries = sum(counts["stalled"] for counts in events.values())
        outcome.refused = history.refused
        outcome.points = dict(sorted(history.points.items()))
        outcome.complaints = self._workspace.complaints

    def _more_violations(self) -> list[checker.Violation]:
        return []


class _Turns:
    """Cycles through the failpoints, so that each one gets its share."""

    def __init__(self, points: Sequence[str], draw: random.Random) -> None:
        self._points = points
        self._random = draw
        self._left: list[str] = []

    def next(self, missed: set[str]) -> str:
        """Return the next point. With `missed`, it is one of these if any belongs to this cycle."""
        wanted = [point for point in self._points if point in missed] or self._points
        if not self._left or self._left[-1] not in wanted:
            self._left = self._random.sample(wanted, len(wanted))
        return self._left.pop()


def stress(size: Size, seed: int) -> Outcome:
    """Run one stress run on a new server; raises TimeoutError, or RuntimeError when a child failed by itself."""
    began = time.monotonic()
    with open_workspace() as workspace:
        if not size.fenced:
            asyncio.run(switch_fencing_off(workspace.url, Stress.queue))
        outcome = Outcome(seed)
        run = Stress(workspace, size, outcome)
        run.disturb()
        run.verify()
    outcome.seconds = time.monotonic() - began
    return outcome
