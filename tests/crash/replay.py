"""Replays what the server told of a queue, event by event, and proves from it that no limit was exceeded.

The events stand in the order in which the server did things, with its time. Between `active` and the next word on a run
the job's fence is valid, and the job holds its slots: a worker that runs on after its lease was taken back does not
count, and cannot have its outcome accepted (checker.py proves that). A job's name says what it is: "<key or ->
<priority> <cost in thousandths>".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from tests.crash.bounds import Bounds, Broken, Change, Peaks
from tests.crash.checker import GIVEN_UP, PUT_OFF, JobEvents, Violation
from tests.crash.roles import Standing

QUEUE_ITSELF = ""
_NOTHING = "-"
State: TypeAlias = Literal["waiting", "delayed", "running", "resting", "ended"]

#: From which states an event may be told, and what it leads to.
STEPS: dict[str, tuple[tuple[State, ...], State]] = {
    "active": (("waiting",), "running"),
    "completed": (("running",), "ended"),
    # The server itself fails what stalled too often, is revoked, or expired.
    "failed": (("running", "waiting", "delayed", "resting"), "ended"),
    "removed": (("running", "waiting", "delayed", "resting", "ended"), "ended"),
    "retrying": (("running",), "resting"),
    PUT_OFF: (("running",), "resting"),
    "returned": (("running",), "waiting"),
    "limited": (("running",), "waiting"),
    "stalled": (("running",), "waiting"),
    "delayed": (("waiting",), "delayed"),
    "waiting": (("delayed", "resting"), "waiting"),
}


class Told(NamedTuple):
    """One event: its kind, the job (or the key), when by the server's clock (ms), and its detail."""

    kind: str
    job: str
    at: int
    detail: str = ""


def read_told(path: Path) -> list[Told]:
    """The events that a ReaderRole wrote, in the order of the server."""
    with path.open() as lines:
        words = (text.rstrip("\n").split(" ", 3) for text in lines)
        return [Told(kind, job, int(at), detail) for kind, job, at, detail in words]


def name_of(stands: Standing) -> str:
    """The name that a job of this kind must have."""
    cost = round(stands.get("cost", 1.0) * 1000)
    return f"{stands.get('key', _NOTHING)} {stands.get('priority', 0)} {cost}"


#: The words around a change: keys that nobody has, whose (empty) pause the server tells like any other.
COMES, CAME = "comes-", "came-"


class Lease(NamedTuple):
    """The interval in which a fence was valid, and how it ended."""

    began: int
    ended: int
    how: str


@dataclass
class _Job:
    key: str | None
    priority: int
    cost: int
    state: State = "waiting"
    arrived: int = 0
    began: int = 0
    fence: int = 0
    first_start: int = 0
    end: int = 0


@dataclass
class _Line:
    """A key: its limits, who waits in which place, who rests for the next attempt, and in which order jobs came."""

    bounds: Bounds
    waiting: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    resting: set[str] = field(default_factory=set[str])
    arrivals: dict[int, list[str]] = field(default_factory=dict[int, list[str]])


class Replay:
    """One history. Ask for `violations` and the figures when all was taken."""

    def __init__(self, changes: Mapping[int, Change]) -> None:
        self.peaks = Peaks()
        self.violations: list[Violation] = []
        self.leases: dict[tuple[str, int], Lease] = {}
        self.counts: dict[str, JobEvents] = {}
        self._changes = changes
        self._queue = Bounds(QUEUE_ITSELF, self.peaks, None)
        self._lines: dict[str, _Line] = {}
        self._jobs: dict[str, _Job] = {}
        self._position = 0

    def take_all(self, history: Iterable[Told]) -> None:
        """Replay a whole history, and look at what is left at its end."""
        for told in history:
            self._position += 1
            self._take(told)
        self._finish()

    def _take(self, told: Told) -> None:
        if told.kind == "added":
            self._add(told)
        elif told.kind == "key-paused":
            self._line(told.job).bounds.closed_until = told.at + int(told.detail)
        elif told.kind == "key-resumed":
            self._change_or_resume(told.job)
        elif told.kind == "changed":
            self._change(told)
        elif told.kind in STEPS:
            self._step(told)

    def _line(self, key: str) -> _Line:
        if key not in self._lines:
            self._lines[key] = _Line(Bounds(key, self.peaks, (1,)))
        return self._lines[key]

    def _change_or_resume(self, key: str) -> None:
        for start in (COMES, CAME):
            if key.startswith(start):
                target, limit, figures = self._changes[int(key.removeprefix(start))]
                bounds = self._line(target).bounds if target else self._queue
                setting = bounds.setting(limit)
                (setting.comes if start == COMES else setting.came)(figures)
                return
        self._line(key).bounds.closed_until = 0

    def _broken(self, kind: str, job: str, seen: str, at: int) -> None:
        self.violations.append(Violation(kind, job, f"{seen}, at {at}"))

    # -- one job --------------------------------------------------------------------------------------------------

    def _add(self, told: Told) -> None:
        key, priority, cost = told.detail.rsplit(" ", 2)
        self._jobs[told.job] = job = _Job(None if key == _NOTHING else key, int(priority), int(cost))
        self.counts.setdefault(told.job, JobEvents())["added"] += 1
        self._wait(told.job, job)

    def _step(self, told: Told) -> None:
        job = self._jobs.get(told.job)
        if job is None:
            self._broken("order", told.job, f"{told.kind} before it was added", told.at)
            return
        kind = PUT_OFF if told.kind == "delayed" and job.state == "running" else told.kind
        self.counts[told.job][kind] += 1
        if kind == "failed" and job.state != "running":
            self.counts[told.job][GIVEN_UP] += 1
        states, after = STEPS[kind]
        if kind == "retrying" and told.detail.startswith("0 "):
            after = "waiting"
        if job.state not in states:
            self._broken("step", told.job, f"{kind} while it was {job.state}", told.at)
        self._leave(told, kind, job)
        job.state = after
        self._enter(told, kind, job)

    def _change(self, told: Told) -> None:
        job, (what, priority) = self._jobs[told.job], told.detail.split()
        self.counts[told.job]["changed"] += 1
        if what != "priority" or job.key is None:
            return
        line = self._line(job.key)
        if told.job in line.arrivals.get(job.priority, ()):
            # It may pass jobs that came before it, and others may pass it.
            line.arrivals[job.priority].remove(told.job)
        job.priority = int(priority)
        if told.job in line.waiting:
            line.waiting[told.job] = (job.priority, job.arrived)

    def _leave(self, told: Told, kind: str, job: _Job) -> None:
        line = self._line(job.key) if job.key is not None else None
        if job.state == "running":
            self.leases[told.job, job.fence] = Lease(job.began, told.at, kind)
            self._queue.running.discard(told.job)
            if line:
                line.bounds.running.discard(told.job)
        if line is None:
            return
        if kind == "active":
            self._check_turn(told, line)
        if kind == "delayed" and told.job in line.waiting:
            # Added with a delay: it comes when that is over.
            line.arrivals[job.priority].remove(told.job)
            job.arrived = 0
        line.waiting.pop(told.job, None)
        line.resting.discard(told.job)

    def _enter(self, told: Told, kind: str, job: _Job) -> None:
        if kind == "limited":
            bounds = self._line(job.key).bounds if job.key is not None else self._queue
            bounds.closed_until = max(bounds.closed_until, told.at + int(told.detail))
        if job.state == "running":
            self._start(told, job)
        elif job.state == "waiting":
            self._wait(told.job, job)
        elif job.state == "resting" and job.key is not None:
            self._line(job.key).resting.add(told.job)
        elif job.state == "ended":
            job.end = job.end or self._position

    def _wait(self, job_id: str, job: _Job) -> None:
        job.state = "waiting"
        if job.key is None:
            return
        line = self._line(job.key)
        if not job.arrived:
            job.arrived = self._position
            line.arrivals.setdefault(job.priority, []).append(job_id)
        line.waiting[job_id] = (job.priority, job.arrived)

    def _check_turn(self, told: Told, line: _Line) -> None:
        if told.job in line.waiting:
            first = min(line.waiting, key=lambda one: line.waiting[one])
            if first != told.job:
                self._broken("order", told.job, f"started before {first}, which came first or is more urgent", told.at)
        if line.resting and line.bounds.one_at_a_time:
            self._broken("order", told.job, f"passed {sorted(line.resting)}, which rests for its next attempt", told.at)

    def _start(self, told: Told, job: _Job) -> None:
        job.fence += 1
        job.began = told.at
        job.first_start = job.first_start or self._position
        found = [*self._queue.start(told.job, job.cost, told.at)]
        self._tell("the queue", told, found)
        if job.key is not None:
            self._tell(f"key {job.key}", told, [*self._line(job.key).bounds.start(told.job, job.cost, told.at)])

    def _tell(self, whose: str, told: Told, found: list[Broken]) -> None:
        for one in found:
            self._broken(one.kind, told.job, f"{whose}: {one.seen}", told.at)

    # -- the end --------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        for job_id, job in self._jobs.items():
            if job.state != "ended":
                self._broken("stuck", job_id, f"is {job.state} at the end, key {job.key}", self._position)
        for key, line in self._lines.items():
            if line.bounds.always_one:
                self.violations += self._overtakers(key, line)

    def _overtakers(self, key: str, line: _Line) -> Iterator[Violation]:
        """One at a time, in one priority: a job starts for the first time only when the one before it has ended."""
        for ids in line.arrivals.values():
            last, last_end = "", 0
            for job_id in ids:
                job = self._jobs[job_id]
                if 0 < job.first_start < last_end:
                    yield Violation("order", job_id, f"of key {key} started before the end of {last}")
                if (job.end or self._position + 1) > last_end:
                    last, last_end = job_id, job.end or self._position + 1
