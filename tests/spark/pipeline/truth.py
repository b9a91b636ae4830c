"""A simulated queue: its jobs and attempts, and independently of them its events."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

NAMES = ("resize", "mail", "report")
ERRORS = ("ValueError", "TimeoutError", "OSError")
START_MS = 1_790_000_000_000


@dataclass
class Attempt:
    """A simulated attempt. Instants are milliseconds since the start."""

    job_id: str
    life: int
    attempt: int
    name: str
    key: str | None
    added: int
    ready: int
    started: int
    finished: int | None = None
    outcome: str | None = None
    error_class: str | None = None

    @property
    def wait_ms(self) -> int:
        return self.started - self.ready

    @property
    def run_ms(self) -> int | None:
        return None if self.finished is None else self.finished - self.started


@dataclass
class TrueJob:
    """A simulated job."""

    job_id: str
    life: int
    name: str
    key: str | None
    added: int
    state: str = "waiting"
    finished: int | None = None
    attempts: int = 0
    retries: int = 0
    stalls: int = 0
    error_class: str | None = None
    dead_letter: str | None = None

    @property
    def end_to_end_ms(self) -> int | None:
        return None if self.finished is None else self.finished - self.added


@dataclass
class Truth:
    """The simulated jobs of a queue, and the rows of their events."""

    queue: str
    incarnation: str
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    jobs: list[TrueJob] = field(default_factory=list[TrueJob])
    events: list[tuple[int, int, int, dict[str, Any]]] = field(
        default_factory=list[tuple[int, int, int, dict[str, Any]]]
    )

    def record(self, at: int, number: int, kind: str, job_id: str, **more: object) -> None:
        """Record an event of the job with this number."""
        self.events.append((at, number, len(self.events), {"event": kind, "job_id": job_id, **more}))

    def rows(self) -> list[dict[str, Any]]:
        """Return the events as rows of the reader, in the order of the queue."""
        found: list[dict[str, Any]] = []
        for seq, (at, _, _, fields) in enumerate(sorted(self.events, key=lambda each: each[:3])):
            found.append(
                {
                    **dict.fromkeys(("name", "key", "detail", "delay_ms", "reason", "error_class")),
                    **fields,
                    "queue": self.queue,
                    "offset": f"{START_MS + at}-{seq}/0",
                    "seq": seq,
                    "ts": instant(at),
                    "incarnation": self.incarnation,
                    "v": 1,
                }
            )
        return found


def instant(at: int) -> datetime:
    """Return the instant `at` milliseconds after the start."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=START_MS + at)


def percentile(values: Iterable[int | None], percent: int) -> int | None:
    """Return a percentile by nearest rank."""
    ordered = sorted(value for value in values if value is not None)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1] if ordered else None


def simulate(count: int, *, seed: int = 1, queue: str = "work", incarnation: str = "i1", hours: float = 2) -> Truth:
    """Simulate jobs: some are delayed, retried or stalled, and one in twenty is added again under its old id."""
    chance = random.Random(seed)
    truth = Truth(queue, incarnation)
    for number in range(count):
        added = chance.randrange(int(hours * 3_600_000))
        job = TrueJob(f"j{number}", 1, NAMES[number % 3], f"k{number % 4}" if number % 2 else None, added)
        end = _live(truth, job, number, chance)
        if end is not None and chance.random() < 0.05:
            truth.record(end + 5, number, "removed", job.job_id, detail=job.state)
            again = TrueJob(job.job_id, 2, NAMES[(number + 1) % 3], None, end + 10)
            _live(truth, again, number, chance)
    return truth


def _live(truth: Truth, job: TrueJob, number: int, chance: random.Random) -> int | None:
    """Simulate a job from its add to its end, and return the instant of its end."""
    truth.jobs.append(job)
    truth.record(job.added, number, "added", job.job_id, name=job.name, key=job.key, detail=job.name)
    ready = job.added
    if chance.random() < 0.1:
        truth.record(job.added, number, "delayed", job.job_id)
        job.state, ready = "delayed", job.added + chance.randrange(1, 60_000)
        if chance.random() < 0.05:
            return None
        truth.record(ready, number, "waiting", job.job_id, detail="")
    for attempt in range(1, 5):
        ready_again = _run(truth, job, attempt, ready, number, chance)
        if ready_again is None:
            return job.finished
        ready = ready_again
    return None


def _run(truth: Truth, job: TrueJob, number: int, ready: int, order: int, chance: random.Random) -> int | None:
    """Simulate an attempt, and return the instant at which the next one may start, or None."""
    started = ready + int(chance.expovariate(1 / 800))
    run = Attempt(job.job_id, job.life, number, job.name, job.key, job.added, ready, started)
    truth.attempts.append(run)
    truth.record(started, order, "active", job.job_id)
    job.attempts, job.state = number, "active"
    if chance.random() < 0.01:
        return None
    finished = started + 1 + int(chance.lognormvariate(5, 1.5))
    run.finished = finished
    dice, error = chance.random(), ERRORS[chance.randrange(3)]
    truth.record(started, order, "progress", job.job_id)
    if dice < 0.02:
        run.outcome, run.error_class, job.state = "stalled", "stalled", "waiting"
        job.stalls += 1
        truth.record(finished, order, "stalled", job.job_id, detail=str(job.stalls))
        return finished
    if dice < 0.12 and number < 3:
        delay = chance.choice((0, 0, 2_000))
        run.outcome, run.error_class = "retrying", error
        job.retries, job.state = job.retries + 1, "delayed" if delay else "waiting"
        events = {"detail": f"{delay} {error}: no", "delay_ms": delay, "reason": f"{error}: no", "error_class": error}
        truth.record(finished, order, "retrying", job.job_id, **events)
        if delay:
            truth.record(finished + delay, order, "waiting", job.job_id, detail="")
        return finished + delay
    if dice < 0.14:
        run.outcome, job.state = "returned", "waiting"
        truth.record(finished, order, "returned", job.job_id)
        return finished
    if dice < 0.16:
        run.outcome, job.state = "limited", "waiting"
        truth.record(finished, order, "limited", job.job_id, detail="50", delay_ms=50)
        return finished + 50
    job.finished = finished
    if dice < 0.2:
        run.outcome, run.error_class, job.state = "failed", error, "failed"
        job.error_class, job.dead_letter = error, "dead"
        reason = f"{error}: at last"
        truth.record(finished, order, "failed", job.job_id, detail=reason, reason=reason, error_class=error)
        truth.record(finished, order, "dead-lettered", job.job_id, detail="dead")
    else:
        run.outcome, job.state = "completed", "completed"
        truth.record(finished, order, "completed", job.job_id)
    return None


def by_minute(values: Sequence[tuple[int | None, int | None]]) -> dict[datetime, list[int]]:
    """Group values by the minute of their instant."""
    found: dict[datetime, list[int]] = {}
    for at, value in values:
        if at is not None and value is not None:
            found.setdefault(instant(at).replace(second=0, microsecond=0), []).append(value)
    return found
