"""The squall: a storm over keyed and limited jobs, whose limits change while it goes. No limit may be exceeded.

What it proves, from the history of the events with the server's times, is in replay.py.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from glidemq_async import Queue, RateLimit, TokenBucket
from tests.crash import storm
from tests.crash.bounds import Change, LimitName
from tests.crash.checker import Violation
from tests.crash.journal import Journal, Line, read_lines
from tests.crash.replay import CAME, COMES, QUEUE_ITSELF, Lease, Replay, name_of, read_told
from tests.crash.roles import Payload, Spec, Standing, break_library, connect_to, payload, run_loop
from tests.crash.room import Room, open_room

ONE, SOME, PACED, PAID = "one", "some", "paced", "paid"
KEYS = {ONE: 24, SOME: 6, PACED: 2, PAID: 2}
WINDOW_MS = 500
#: The first number of the changes that follow those of the changer.
AFTER_THE_CHANGER = 1_000_000
#: The server gives whole milliseconds.
GRAIN_MS = 2.0

#: What holds from the beginning; keys `one` have no limits, so that they run one at a time.
FIRST = [
    Change(QUEUE_ITSELF, "concurrency", (100,)),
    Change(QUEUE_ITSELF, "rate", (200, WINDOW_MS)),
    *(Change(f"{SOME}-{n}", "concurrency", (3,)) for n in range(KEYS[SOME])),
    *(Change(f"{PACED}-{n}", "concurrency", (8,)) for n in range(KEYS[PACED])),
    *(Change(f"{PACED}-{n}", "rate", (15, WINDOW_MS)) for n in range(KEYS[PACED])),
    *(Change(f"{PAID}-{n}", "concurrency", (4,)) for n in range(KEYS[PAID])),
    *(Change(f"{PAID}-{n}", "bucket", (6_000, 12_000)) for n in range(KEYS[PAID])),
]


@dataclass(frozen=True)
class Defect:
    """A way to break the library, and the kind of violation that must be found then."""

    kind: str
    old: str
    new: str


DEFECTS = {
    "a key runs one more": Defect(
        "concurrency",
        "local concurrency = limits_now.concurrency or 1",
        "local concurrency = (limits_now.concurrency or 1) + 1",
    ),
    "a zombie frees the slot of its successor": Defect(
        "concurrency",
        "local _, key = entries.find(base .. ':lane', string.sub(entry, 2))\n      if key then",
        "local key = keyed.route_of(base, id)\n      key = key and key.key\n      if key then",
    ),
    "the queue does not count plain jobs": Defect(
        "concurrency",
        "entries.pending_count(base .. ':stream') + entries.pending_count(base .. ':lane')",
        "entries.pending_count(base .. ':lane')",
    ),
    "a window holds one more": Defect(
        "rate", "if started < max then return max - started end", "if started <= max then return max - started + 1 end"
    ),
    "a bucket fills twice as fast": Defect("bucket", "* bucket.refill / 1000)", "* bucket.refill / 500)"),
    "a resting job is passed": Defect("order", "if left > 0 and concurrency == 1 and call.seen.resting", "if false"),
    "what comes back goes to the end": Defect("order", "if route.sequence == 0 then", "if true then"),
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
    peaks: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def faults(self) -> list[str]:
        """Why this run proves nothing, or what it disproves; [] is a pass."""
        rules = {
            "few kills cost a job its run": self.redeliveries >= self.kills,
            "no zombie ran on after its lease": self.outlived > 0,
            "no limit changed": self.changes > len(FIRST),
            "no key was paused": self.pauses > 0,
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
            f"{self.outlived:,} runs outlived their lease, {self.changes:,} limits set, {self.pauses} pauses; "
            f"largest seen: {peaks}; {sum(self.broken.values())} broken, {self.seconds:.0f} s, seed {self.seed}"
        )


def _label(group: str, limit: LimitName) -> str:
    return f"{group} {limit}"


#: The limits that every run must meet.
PEAKS = {_label(change.target.partition("-")[0] or "queue", change.limit) for change in FIRST} | {
    _label(ONE, "concurrency")
}


@dataclass(frozen=True)
class ChangerRole:
    """A process that sets limits up and down and pauses keys, for ever, and writes down every change before."""

    url: str
    queue: str
    journal: Journal
    seed: int

    def __call__(self) -> None:
        """Change limits until killed."""
        run_loop(self._change_for_ever())

    async def _change_for_ever(self) -> None:
        draw = random.Random(self.seed)
        async with connect_to(self.url) as storage, Queue[Payload, int](self.queue, storage) as queue:
            for number in itertools.count(len(FIRST)):
                await asyncio.sleep(draw.uniform(0.05, 0.3))
                await set_limit(queue, self.journal, number, _another(draw))
                await queue.pause_key(_a_key(draw, ONE, SOME), draw.uniform(0.02, 0.2))


def _a_key(draw: random.Random, *kinds: str) -> str:
    kind = draw.choice(kinds)
    return f"{kind}-{draw.randrange(KEYS[kind])}"


def _another(draw: random.Random) -> Change:
    """A new value for one of the limits. A rate keeps its length, so that every window can be proven."""
    kind = draw.choice(("queue", "window", SOME, SOME, PACED, PAID))
    if kind == "queue":
        return Change(QUEUE_ITSELF, "concurrency", (draw.choice((50, 75, 100, 125)),))
    if kind == "window":
        return Change(QUEUE_ITSELF, "rate", (draw.choice((120, 160, 240)), WINDOW_MS))
    if kind == SOME:
        return Change(_a_key(draw, SOME), "concurrency", (draw.choice((1, 2, 3, 4)),))
    if kind == PACED:
        return Change(_a_key(draw, PACED), "rate", (draw.choice((8, 15, 22)), WINDOW_MS))
    return Change(_a_key(draw, PAID), "bucket", draw.choice(((6_000, 12_000), (4_000, 16_000), (10_000, 8_000))))


async def set_limit(queue: Queue[Payload, int], journal: Journal, number: int, change: Change) -> None:
    """Set one limit, between two events that tell in the history of the server when."""
    target, limit, figures = change
    journal.write("change", number, target or "-", limit, *figures)
    await queue.pause_key(f"{COMES}{number}", 0)
    if limit == "bucket":
        await queue.set_key_limits(target, token_bucket=TokenBucket(figures[0] / 1000, figures[1] / 1000))
    elif limit == "rate":
        rate = RateLimit(figures[0], figures[1] / 1000)
        await (queue.set_key_limits(target, rate_limit=rate) if target else queue.set_global_rate_limit(rate))
    elif target:
        await queue.set_key_limits(target, concurrency=figures[0])
    else:
        await queue.set_global_concurrency(figures[0])
    await queue.pause_key(f"{CAME}{number}", 0)


async def set_first_limits(url: str, queue_name: str, journal: Journal, number: int) -> None:
    """Set what holds from the beginning; the changes are numbered from `number`."""
    async with connect_to(url) as storage, Queue[Payload, int](queue_name, storage) as queue:
        for one, change in enumerate(FIRST, number):
            await set_limit(queue, journal, one, change)


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
    return {"key": key, "priority": draw.choice((0, 0, 0, 4))}


# -- what the journal says ----------------------------------------------------------------------------------------


def read_changes(lines: list[Line]) -> dict[int, Change]:
    """The changes that were written down, by number."""
    changes: dict[int, Change] = {}
    for line in lines:
        if line.kind == "change":
            number, target, limit, *figures = line.words
            name: LimitName = "rate" if limit == "rate" else "bucket" if limit == "bucket" else "concurrency"
            changes[int(number)] = Change(target if target != "-" else QUEUE_ITSELF, name, tuple(map(int, figures)))
    return changes


@dataclass
class HandlerRun:
    """A handler's own time, monotonic seconds; without an end if it was killed."""

    job: str
    fence: int
    began: float
    ended: float | None = None


def read_handlers(lines: list[Line]) -> list[HandlerRun]:
    """Every run of a handler."""
    found: dict[tuple[str, int, int], HandlerRun] = {}
    for line in lines:
        if line.kind in ("start", "end"):
            job, fence = line.words[0], int(line.words[1])
            if line.kind == "start":
                found[job, fence, line.pid] = HandlerRun(job, fence, line.at)
            else:
                found[job, fence, line.pid].ended = line.at
    return list(found.values())


#: Ends that a handler brought about by its own.
_BY_HANDLER = ("completed", "retrying", "limited", "put off")


def strays(handlers: list[HandlerRun], leases: dict[tuple[str, int], Lease], ahead: float) -> Iterator[Violation]:
    """Handlers that ran outside of the interval of their fence, although their outcome was accepted.

    So intervals of the server's clock say what really ran at once. ahead: wall clock less monotonic, seconds.
    """
    for run in handlers:
        lease = leases.get((run.job, run.fence))
        if lease is None:
            yield Violation("fence", run.job, f"ran under claim {run.fence}, which was never told")
            continue
        if (run.began + ahead) * 1000 < lease.began - GRAIN_MS:
            yield Violation("stray", run.job, f"claim {run.fence} started before it was told")
        late = run.ended is not None and (run.ended + ahead) * 1000 > lease.ended + GRAIN_MS
        if late and lease.how in _BY_HANDLER:
            yield Violation("stray", run.job, f"claim {run.fence} was {lease.how} before its handler had ended")


def outlived(run: HandlerRun, leases: dict[tuple[str, int], Lease], ahead: float) -> bool:
    """Whether a handler ran on after its job was taken back."""
    lease = leases.get((run.job, run.fence))
    if lease is None or lease.how != "stalled" or run.ended is None:
        return False
    return (run.ended + ahead) * 1000 > lease.ended + GRAIN_MS


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
