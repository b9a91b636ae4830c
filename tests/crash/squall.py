"""The squall: a storm over keyed and limited jobs, whose limits change while it goes. No limit may be exceeded.

What it proves, from the history of the events with the server's times, is in replay.py.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from dataclasses import dataclass, field
from itertools import pairwise

from tests.crash import storm
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
from tests.crash.handlers import outlived, read_handlers, strays
from tests.crash.journal import read_lines
from tests.crash.replay import Replay, name_of, read_told
from tests.crash.roles import Spec, Standing, break_library, payload
from tests.crash.room import Room, open_room


@dataclass(frozen=True)
class Defect:
    """A way to break the library, and the kind of violation that must be found then."""

    kind: str
    old: str
    new: str
    zombies: int = 8
    """How many it takes to show surely."""


DEFECTS = {
    "a key runs one more": Defect(
        "concurrency",
        "local concurrency = limits_now.concurrency or 1",
        "local concurrency = (limits_now.concurrency or 1) + 1",
    ),
    "a zombie frees the slot of its successor": Defect(
        "concurrency",
        "  if not valid or #keys < #of_keys then keys =",
        "  if #keys < #of_keys then keys =",
        zombies=25,
    ),
    "the queue does not count plain jobs": Defect(
        "concurrency",
        "entries.pending_count(base .. ':stream') + entries.pending_count(base .. ':lane')\n    local left",
        "entries.pending_count(base .. ':lane')\n    local left",
    ),
    "a window holds one more": Defect(
        "rate", "if started < max then return max - started end", "if started <= max then return max - started + 1 end"
    ),
    "a bucket fills twice as fast": Defect("bucket", "* bucket.refill / 1000)", "* bucket.refill / 500)"),
    "a resting job is passed": Defect("order", "if left > 0 and concurrency == 1 and call.seen.resting", "if false"),
    "what comes back goes to the end": Defect(
        "order", "if route.sequence ~= '0' then return false end", "if false then return false end"
    ),
    "a pause stops nothing": Defect("pause", "if call.seen.pauses then at =", "if false then at ="),
}


@dataclass(frozen=True)
class Size(storm.Size):
    """How large a squall is; `defect` names a way to break the library."""

    jobs: int = 2_000
    kills: int = 120
    zombies: int = 12
    batch: int = 100
    defect: str = ""


@dataclass
class Outcome(storm.Outcome):
    """The figures of a squall: those of a storm, and how close it came to each limit."""

    changes: int = 0
    pauses: int = 0
    outlived: int = 0
    meddled: int = 0
    longest_gap: float = 0.0
    """Milliseconds between two starts."""
    peaks: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def faults(self) -> list[str]:
        """Why this run proves nothing, or what it disproves; [] is a pass."""
        rules = {
            "few kills cost a job its run": self.redeliveries >= self.kills,
            "no zombie ran on after its lease": self.outlived > 0,
            "no limit changed": self.changes > len(FIRST),
            "no key was paused": self.pauses > 0,
            "no job was removed, revoked, expired or changed": self.meddled > 0,
            **{f"nothing met the limit {name}": filled > 0 for name, (_, filled) in self.peaks.items()},
            f"the limits that were met are {sorted(self.peaks)}": set(self.peaks) == PEAKS,
            f"children complained: {self.complaints[-2000:]}": not self.complaints,
            f"broken: {self.broken} {self.shown}": not self.broken,
        }
        return [fault for fault, passed in rules.items() if not passed]

    @property
    def line(self) -> str:
        """The run in one line."""
        peaks = ", ".join(f"{name} {most:g} ({filled:,.0f} times full)" for name, (most, filled) in self.peaks.items())
        return (
            f"crash squall: {self.kills:,} kills ({self.kills_with_work:,} with jobs in hand), {self.zombies} zombies, "
            f"{self.jobs:,} jobs, {self.runs:,} runs, {self.redeliveries:,} redeliveries, "
            f"{self.outlived:,} runs outlived their lease, {self.changes:,} limits set, {self.pauses} pauses, "
            f"{self.meddled} jobs removed, revoked, expired or changed, "
            f"{self.longest_gap:,.0f} ms at most between starts; "
            f"largest seen: {peaks}; {sum(self.broken.values())} broken, {self.seconds:.0f} s, seed {self.seed}"
        )


def _label(group: str, limit: LimitName) -> str:
    return f"{group} {limit}"


#: The limits that every run must meet.
PEAKS = {_label(change.target.partition("-")[0] or "queue", change.limit) for change in FIRST} | {
    _label(ONE, "concurrency")
}


class Squall(storm.Storm):
    """One run."""

    queue = "squall"

    def __init__(self, room: Room, size: Size, outcome: Outcome) -> None:
        super().__init__(room, size, outcome)
        self._found = outcome
        self._replay = Replay({})

    def rage(self) -> None:
        """Kill, add and change limits until it is enough."""
        asyncio.run(set_first_limits(self._room.url, self.queue, self._room.journal, 0))
        self._room.herd.fork(ChangerRole(self._room.url, self.queue, self._room.journal, self._random.getrandbits(32)))
        super().rage()

    def _plan_death(self, pid: int, fate: storm.Fate) -> None:
        if fate != "zombie":
            super()._plan_death(pid, fate)
            return
        # It takes jobs first, and sleeps until they have surely been taken back: a zombie must meet its successors.
        draw = self._random.uniform
        at = time.monotonic() + draw(0.3, 0.8)
        self._at(at, pid, signal.SIGSTOP)
        at += draw(1.9, 2.5) * storm.LEASE
        self._at(at, pid, signal.SIGCONT)
        self._at(at + draw(0.3, 0.6), pid, signal.SIGKILL)

    def _calm_down(self) -> None:
        # The changer died at any moment, maybe between a change and its end.
        asyncio.run(set_first_limits(self._room.url, self.queue, self._room.journal, AFTER_THE_CHANGER))
        super()._calm_down()

    def _new_spec(self) -> Spec:
        spec, draw = super()._new_spec(), self._random
        stands = _standing(draw)
        sleep = draw.choices((0.0, draw.uniform(0.01, 0.05), draw.uniform(0.05, 0.3)), (20, 50, 30))[0]
        told = payload(
            sleep,
            failures=draw.choices((0, 1, 2, 3), (90, 6, 2, 2))[0],
            fatal=draw.random() < 0.02,
            later=0.05 if draw.random() < 0.02 else 0.0,
            # Without a key the whole queue would wait.
            met=0.05 if draw.random() < (0.02 if "key" in stands else 0.005) else 0.0,
        )
        return {**spec, "told": told, "name": name_of(stands), "stands": stands}

    def prove(self) -> None:
        """Replay the history, then compare it with the journal and the store."""
        lines = read_lines(self._room.journal)
        told = read_told(self._room.directory / "events")
        changes = read_changes(lines)
        self._replay = Replay(changes)
        self._replay.take_all(told)
        handlers = read_handlers(lines)
        ahead = time.time() - time.monotonic()
        self._replay.violations += strays(handlers, self._replay.leases, ahead)
        found = self._found
        found.changes = len(changes)
        found.pauses = sum(one.kind == "key-paused" for one in told)
        found.meddled = sum(
            kinds["removed"] + kinds["changed"] + kinds[GIVEN_UP] for kinds in self._replay.counts.values()
        )
        starts = [one.at for one in told if one.kind == "active"]
        found.longest_gap = max((after - before for before, after in pairwise(starts)), default=0)
        found.outlived = sum(outlived(handler, self._replay.leases, ahead) for handler in handlers)
        found.peaks = {
            _label(*where): [round(peak.most, 1), peak.filled]
            for where, peak in sorted(self._replay.peaks.found.items())
        }
        self._prove(self._replay.counts)

    def _more_violations(self) -> list[Violation]:
        return self._replay.violations


def _standing(draw: random.Random) -> Standing:
    kind = draw.choices(("plain", "urgent", "lifo", ONE, SOME, PACED, PAID), (16, 10, 6, 36, 18, 7, 7))[0]
    if kind == "plain":
        return {}
    if kind == "urgent":
        return {"priority": draw.randint(1, 3)}
    if kind == "lifo":
        return {"lifo": True}
    key = f"{kind}-{draw.randrange(KEYS[kind])}"
    if kind == PAID:
        # The last one costs more than any bucket holds: it starts when the bucket is full, into debt.
        return {"key": key, "cost": draw.choices((0.5, 1.0, 2.5, 14.0), (30, 40, 27, 3))[0]}
    stands: Standing = {"key": key, "priority": draw.choice((0, 0, 0, 4))}
    return {**stands, "ttl": draw.uniform(0.1, 2.0)} if draw.random() < 0.05 else stands


def squall(size: Size, seed: int) -> Outcome:
    """Run one squall on a server of its own; raises as `storm` does."""
    began = time.monotonic()
    if size.defect:
        defect = DEFECTS[size.defect]
        break_library(defect.old, defect.new)
    with open_room() as room:
        outcome = Outcome(seed)
        run = Squall(room, size, outcome)
        run.rage()
        run.prove()
    outcome.seconds = time.monotonic() - began
    return outcome
