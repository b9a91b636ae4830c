"""Replays the events of a queue and checks that no limit was exceeded.

The events are in the order in which the server did its work, with its times. Between `active` and the next event of a
run, the job's fencing token is valid and the job occupies its slots. A worker that continues after its job was
reclaimed does not count, and cannot settle (checker.py checks that). A job's name describes it: "<key or -> <priority>
<cost in thousandths>".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from tests.crash.bounds import Bounds, Broken, Change, Peaks
from tests.crash.checker import DELAYED_AGAIN, GIVEN_UP, JobEvents, Violation
from tests.crash.roles import AddOptions

QUEUE_ITSELF = ""
_NOTHING = "-"
State: TypeAlias = Literal["waiting", "delayed", "running", "resting", "ended"]

#: The states in which an event may occur, and the state that it leads to.
STEPS: dict[str, tuple[tuple[State, ...], State]] = {
    "active": (("waiting",), "running"),
    "completed": (("running",), "ended"),
    # The server itself fails jobs that stalled too often, were revoked, or expired.
    "failed": (("running", "waiting", "delayed", "resting"), "ended"),
    "removed": (("running", "waiting", "delayed", "resting", "ended"), "ended"),
    "retrying": (("running",), "resting"),
    DELAYED_AGAIN: (("running",), "resting"),
    "returned": (("running",), "waiting"),
    "limited": (("running",), "waiting"),
    "stalled": (("running",), "waiting"),
    "delayed": (("waiting",), "delayed"),
    "waiting": (("delayed", "resting"), "waiting"),
}


class Event(NamedTuple):
    """One event: its kind, the job (or the key), its time by the server's clock (ms), and its detail."""

    kind: str
    job: str
    at: int
    detail: str = ""


def read_server_events(path: Path) -> list[Event]:
    """Return the events that a ReaderRole wrote, in the order of the server. The last line may be incomplete."""
    with path.open() as lines:
        words = (text.rstrip("\n").split(" ", 3) for text in lines if text.endswith("\n"))
        return [Event(kind, job, int(at), detail) for kind, job, at, detail in words]


def name_of(options: AddOptions) -> str:
    """Return the name that a job of this kind must have."""
    cost = round(options.get("cost", 1.0) * 1000)
    return f"{options.get('key', _NOTHING)} {options.get('priority', 0)} {cost}"


#: Marks around a change: keys that do not exist. The server reports their (empty) pause like any other.
CHANGE_BEGINS, CHANGE_ENDS = "begins-", "ends-"


class Lease(NamedTuple):
    """The interval in which a fencing token was valid, and its end."""

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
    """A key: its limits, its waiting jobs, its jobs between two attempts, and the order in which jobs came."""

    bounds: Bounds
    waiting: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    resting: set[str] = field(default_factory=set[str])
    arrivals: dict[int, list[str]] = field(default_factory=dict[int, list[str]])


class Replay:
    """One history. `violations` and the figures are complete after the last event."""

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

    def take_all(self, history: Iterable[Event]) -> None:
        """Replay a complete history, and check its end."""
        for event in history:
            self._position += 1
            self._take(event)
        self._finish()

    def _take(self, event: Event) -> None:
        if event.kind == "added":
            self._add(event)
        elif event.kind == "key-paused":
            self._line(event.job).bounds.closed_until = event.at + int(event.detail)
        elif event.kind == "key-resumed":
            self._change_or_resume(event.job)
        elif event.kind == "changed":
            self._change(event)
        elif event.kind in STEPS:
            self._step(event)

    def _line(self, key: str) -> _Line:
        if key not in self._lines:
            self._lines[key] = _Line(Bounds(key, self.peaks, (1,)))
        return self._lines[key]

    def _change_or_resume(self, key: str) -> None:
        for start in (CHANGE_BEGINS, CHANGE_ENDS):
            if key.startswith(start):
                target, limit, figures = self._changes[int(key.removeprefix(start))]
                bounds = self._line(target).bounds if target else self._queue
                setting = bounds.setting(limit)
                (setting.begin_change if start == CHANGE_BEGINS else setting.end_change)(figures)
                return
        self._line(key).bounds.closed_until = 0

    def _broken(self, kind: str, job: str, seen: str, at: int) -> None:
        self.violations.append(Violation(kind, job, f"{seen}, at {at}"))

    # -- one job --------------------------------------------------------------------------------------------------

    def _add(self, event: Event) -> None:
        key, priority, cost = event.detail.rsplit(" ", 2)
        self._jobs[event.job] = job = _Job(None if key == _NOTHING else key, int(priority), int(cost))
        self.counts.setdefault(event.job, JobEvents())["added"] += 1
        self._wait(event.job, job)

    def _step(self, event: Event) -> None:
        job = self._jobs.get(event.job)
        if job is None:
            self._broken("order", event.job, f"{event.kind} before it was added", event.at)
            return
        kind = DELAYED_AGAIN if event.kind == "delayed" and job.state == "running" else event.kind
        self.counts[event.job][kind] += 1
        if kind == "failed" and job.state != "running":
            self.counts[event.job][GIVEN_UP] += 1
        states, after = STEPS[kind]
        if kind == "retrying" and event.detail.startswith("0 "):
            after = "waiting"
        if job.state not in states:
            self._broken("step", event.job, f"{kind} while it was {job.state}", event.at)
        self._leave(event, kind, job)
        job.state = after
        self._enter(event, kind, job)

    def _change(self, event: Event) -> None:
        job, (what, priority) = self._jobs[event.job], event.detail.split()
        self.counts[event.job]["changed"] += 1
        if what != "priority" or job.key is None:
            return
        line = self._line(job.key)
        if event.job in line.arrivals.get(job.priority, ()):
            # It may overtake jobs that came before it, and others may overtake it.
            line.arrivals[job.priority].remove(event.job)
        job.priority = int(priority)
        if event.job in line.waiting:
            line.waiting[event.job] = (job.priority, job.arrived)

    def _leave(self, event: Event, kind: str, job: _Job) -> None:
        line = self._line(job.key) if job.key is not None else None
        if job.state == "running":
            self.leases[event.job, job.fence] = Lease(job.began, event.at, kind)
            self._queue.running.discard(event.job)
            if line:
                line.bounds.running.discard(event.job)
        if line is None:
            return
        if kind == "active":
            self._check_turn(event, line)
        if kind == "delayed" and event.job in line.waiting:
            # Added with a delay: its position in the order counts from the end of the delay.
            line.arrivals[job.priority].remove(event.job)
            job.arrived = 0
        line.waiting.pop(event.job, None)
        line.resting.discard(event.job)

    def _enter(self, event: Event, kind: str, job: _Job) -> None:
        if kind == "limited":
            bounds = self._line(job.key).bounds if job.key is not None else self._queue
            bounds.closed_until = max(bounds.closed_until, event.at + int(event.detail))
        if job.state == "running":
            self._start(event, job)
        elif job.state == "waiting":
            self._wait(event.job, job)
        elif job.state == "resting" and job.key is not None:
            self._line(job.key).resting.add(event.job)
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

    def _check_turn(self, event: Event, line: _Line) -> None:
        if event.job in line.waiting:
            first = min(line.waiting, key=lambda one: line.waiting[one])
            if first != event.job:
                self._broken(
                    "order", event.job, f"started before {first}, which came earlier or is more urgent", event.at
                )
        if line.resting and line.bounds.one_at_a_time:
            self._broken(
                "order", event.job, f"overtook {sorted(line.resting)}, which waits for its next attempt", event.at
            )

    def _start(self, event: Event, job: _Job) -> None:
        job.fence += 1
        job.began = event.at
        job.first_start = job.first_start or self._position
        found = [*self._queue.start(event.job, job.cost, event.at)]
        self._report("the queue", event, found)
        if job.key is not None:
            self._report(f"key {job.key}", event, [*self._line(job.key).bounds.start(event.job, job.cost, event.at)])

    def _report(self, whose: str, event: Event, found: list[Broken]) -> None:
        for one in found:
            self._broken(one.kind, event.job, f"{whose}: {one.seen}", event.at)

    # -- the end --------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        for job_id, job in self._jobs.items():
            if job.state != "ended":
                self._broken("stuck", job_id, f"is {job.state} at the end, key {job.key}", self._position)
        for key, line in self._lines.items():
            if line.bounds.always_one:
                self.violations += self._overtakers(key, line)

    def _overtakers(self, key: str, line: _Line) -> Iterator[Violation]:
        """Check that jobs which run one at a time in one priority start for the first time only after the end of the
        previous one.
        """
        for ids in line.arrivals.values():
            last, last_end = "", 0
            for job_id in ids:
                job = self._jobs[job_id]
                if 0 < job.first_start < last_end:
                    yield Violation("order", job_id, f"of key {key} started before the end of {last}")
                if (job.end or self._position + 1) > last_end:
                    last, last_end = job_id, job.end or self._position + 1
