"""The limit stress: a stress run with keyed and limited jobs, whose limits change during the run. No limit may be
exceeded.

replay.py checks it, from the events with the server's times.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from dataclasses import dataclass, field
from itertools import pairwise

from tests.crash import stress
from tests.crash.bounds import LimitName
from tests.crash.changer import (
    AFTER_THE_CHANGER,
    FIRST,
    KEYS,
    ONE,
    PACED,
    PAID,
    SOME,
    ChangerRole,
    read_changes,
    set_first_limits,
)
from tests.crash.checker import GIVEN_UP, Violation
from tests.crash.handlers import outlived, read_handlers, stray_runs
from tests.crash.journal import read_lines
from tests.crash.replay import Replay, name_of, read_server_events
from tests.crash.roles import AddOptions, Spec, break_library, payload
from tests.crash.workspace import ServerWorkspace, open_workspace


@dataclass(frozen=True)
class Defect:
    """A defect of the library, and the kind of violation that the check must report for it."""

    kind: str
    old: str
    new: str
    zombies: int = 8
    """The number of zombies that shows the defect reliably."""


DEFECTS = {
    "a key exceeds its concurrency by one": Defect(
        "concurrency",
        "concurrency = tonumber(raw[1] or nil) or 1,",
        "concurrency = (tonumber(raw[1] or nil) or 1) + 1,",
    ),
    "a zombie frees the slot of its successor": Defect(
        "concurrency",
        "  if elsewhere < #ids then keys =",
        "  if false then keys =",
        zombies=25,
    ),
    "the queue does not count plain jobs": Defect(
        "concurrency",
        "  return entries.pending_count(base .. ':fifo') + redis.call('ZCARD', base .. ':runs')\n",
        "  return redis.call('ZCARD', base .. ':runs')\n",
    ),
    "a window exceeds its limit by one": Defect(
        "rate", "if started < max then return max - started,", "if started <= max then return max - started + 1,"
    ),
    "a bucket fills twice as fast": Defect("bucket", "* bucket.refill / 1000)", "* bucket.refill / 500)"),
    "a job overtakes one that waits for its next attempt": Defect(
        "order", "return limits_now.concurrency == 1 and seen.resting and", "return false and"
    ),
    "a released job goes to the end of its line": Defect(
        "order", "if route.sequence ~= '0' then return false end", "if false then return false end"
    ),
    "a pause has no effect": Defect("pause", "if call.seen.pauses then pause =", "if false then pause ="),
}


@dataclass(frozen=True)
class Size(stress.Size):
    """The size of a run; `defect` names a defect of the library."""

    jobs: int = 2_000
    kills: int = 120
    zombies: int = 12
    batch: int = 100
    defect: str = ""


@dataclass
class Outcome(stress.Outcome):
    """The figures of a stress run, and how close it came to each limit."""

    changes: int = 0
    pauses: int = 0
    outlived: int = 0
    meddled: int = 0
    longest_gap: float = 0.0
    """Milliseconds between two starts."""
    peaks: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def gaps(self) -> list[str]:
        """Return the reasons why this run proves nothing so far."""
        rules = {
            "few kills interrupted a run": self.redeliveries >= self.kills,
            "no zombie continued after its lease": self.outlived > 0,
            "no limit changed": self.changes > len(FIRST),
            "no key was paused": self.pauses > 0,
            "no job was removed, revoked, expired or changed": self.meddled > 0,
            **{f"no run reached the limit {name}": filled > 0 for name, (_, filled) in self.peaks.items()},
            f"the limits that were reached are {sorted(self.peaks)}": set(self.peaks) == PEAKS,
        }
        return [gap for gap, passed in rules.items() if not passed]

    def faults(self) -> list[str]:
        """Return the reasons why this run proves nothing, or the rules that it breaks; an empty list is a pass."""
        rules = {
            f"children complained: {self.complaints[-2000:]}": not self.complaints,
            f"broken: {self.broken} {self.shown}": not self.broken,
        }
        return self.gaps() + [fault for fault, passed in rules.items() if not passed]

    @property
    def line(self) -> str:
        """Return the summary of the run in one line."""
        peaks = ", ".join(f"{name} {most:g} ({filled:,.0f} times full)" for name, (most, filled) in self.peaks.items())
        return (
            f"limit stress: {self.kills:,} kills ({self.kills_with_work:,} with running jobs), {self.zombies} zombies, "
            f"{self.jobs:,} jobs, {self.runs:,} runs, {self.redeliveries:,} redeliveries, "
            f"{self.outlived:,} runs continued after their lease, {self.changes:,} limits set, {self.pauses} pauses, "
            f"{self.meddled} jobs removed, revoked, expired or changed, "
            f"{self.longest_gap:,.0f} ms at most between starts; "
            f"largest seen: {peaks}; {sum(self.broken.values())} broken, {self.seconds:.0f} s, seed {self.seed}"
        )


def _label(group: str, limit: LimitName) -> str:
    return f"{group} {limit}"


#: The limits that every run must reach.
PEAKS = {_label(change.target.partition("-")[0] or "queue", change.limit) for change in FIRST} | {
    _label(ONE, "concurrency")
}


class LimitStress(stress.Stress):
    """One run."""

    queue = "limit_stress"

    def __init__(self, workspace: ServerWorkspace, size: Size, outcome: Outcome) -> None:
        super().__init__(workspace, size, outcome)
        self._found = outcome
        self._replay = Replay({})
        self._defect = DEFECTS.get(size.defect)
        self._next_measure = 0.0

    def disturb(self) -> None:
        """Kill, add and change limits until the run has reached its size."""
        asyncio.run(set_first_limits(self._workspace.url, self.queue, self._workspace.journal, 0))
        self._workspace.children.fork(
            ChangerRole(self._workspace.url, self.queue, self._workspace.journal, self._random.getrandbits(32))
        )
        super().disturb()

    def _plan_death(self, pid: int, fate: stress.Fate) -> None:
        if fate != "zombie":
            super()._plan_death(pid, fate)
            return
        # A zombie sleeps until its jobs have surely been reclaimed: it must meet the jobs' next runs.
        draw = self._random.uniform
        at = time.monotonic() + draw(0.1, 0.5)
        self._at(at, pid, signal.SIGSTOP)
        at += draw(1.9, 2.5) * stress.LEASE
        self._at(at, pid, signal.SIGCONT)
        self._at(at + draw(0.3, 0.6), pid, signal.SIGKILL)

    def _finish_remaining_jobs(self) -> None:
        # The changer may have died between the two events around a change.
        asyncio.run(set_first_limits(self._workspace.url, self.queue, self._workspace.journal, AFTER_THE_CHANGER))
        super()._finish_remaining_jobs()

    def _new_spec(self) -> Spec:
        spec, draw = super()._new_spec(), self._random
        options = _options(draw)
        sleep = draw.choices((0.0, draw.uniform(0.01, 0.05), draw.uniform(0.05, 0.3)), (20, 50, 30))[0]
        instructions = payload(
            sleep,
            failures=draw.choices((0, 1, 2, 3), (90, 6, 2, 2))[0],
            fatal=draw.random() < 0.02,
            later=0.05 if draw.random() < 0.02 else 0.0,
            # Without a key the limit would stop the complete queue.
            met=0.05 if draw.random() < (0.02 if "key" in options else 0.005) else 0.0,
        )
        return {
            **spec,
            "payload": instructions,
            "name": name_of(options),
            "options": options,
        }

    def _is_inconclusive(self) -> bool:
        if time.monotonic() >= self._next_measure:
            self._measure()
            self._next_measure = time.monotonic() + 2.0
        if self._defect is not None:
            return all(one.kind != self._defect.kind for one in self._replay.violations)
        return bool(self._found.gaps())

    def verify(self) -> None:
        """Replay the history, then compare it with the journal and the store."""
        self._measure()
        self._prove(self._replay.counts)

    def _measure(self) -> None:
        """Replay the history so far."""
        # The journal has each change before its event.
        events = read_server_events(self._workspace.directory / "events")
        lines = read_lines(self._workspace.journal)
        changes = read_changes(lines)
        self._replay = Replay(changes)
        self._replay.take_all(events)
        handlers = read_handlers(lines)
        ahead = time.time() - time.monotonic()
        self._replay.violations += stray_runs(handlers, self._replay.leases, ahead)
        found = self._found
        found.changes = len(changes)
        found.redeliveries = sum(kinds["stalled"] for kinds in self._replay.counts.values())
        found.pauses = sum(one.kind == "key-paused" for one in events)
        found.meddled = sum(
            kinds["removed"] + kinds["changed"] + kinds[GIVEN_UP] for kinds in self._replay.counts.values()
        )
        starts = [one.at for one in events if one.kind == "active"]
        found.longest_gap = max((after - before for before, after in pairwise(starts)), default=0)
        found.outlived = sum(outlived(handler, self._replay.leases, ahead) for handler in handlers)
        found.peaks = {
            _label(*where): [round(peak.most, 1), peak.filled]
            for where, peak in sorted(self._replay.peaks.found.items())
        }

    def _more_violations(self) -> list[Violation]:
        return self._replay.violations


def _options(draw: random.Random) -> AddOptions:
    kind = draw.choices(("plain", "urgent", "lifo", ONE, SOME, PACED, PAID), (16, 10, 6, 36, 18, 7, 7))[0]
    if kind == "plain":
        return {}
    if kind == "urgent":
        return {"priority": draw.randint(1, 3)}
    if kind == "lifo":
        return {"lifo": True}
    key = f"{kind}-{draw.randrange(KEYS[kind])}"
    if kind == PAID:
        # The last job costs more than any bucket holds. It starts when the bucket is full, and leaves a debt.
        return {"key": key, "cost": draw.choices((0.5, 1.0, 2.5, 14.0), (30, 40, 27, 3))[0]}
    options: AddOptions = {"key": key, "priority": draw.choice((0, 0, 0, 4))}
    return {**options, "ttl": draw.uniform(0.1, 2.0)} if draw.random() < 0.05 else options


def limit_stress(size: Size, seed: int) -> Outcome:
    """Run one limit stress on a new server; raises as `stress` does."""
    began = time.monotonic()
    if size.defect:
        defect = DEFECTS[size.defect]
        break_library(defect.old, defect.new)
    with open_workspace() as workspace:
        outcome = Outcome(seed)
        run = LimitStress(workspace, size, outcome)
        run.disturb()
        run.verify()
    outcome.seconds = time.monotonic() - began
    return outcome
