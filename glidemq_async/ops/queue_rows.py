"""Queues, their workers and their schedules as rows, for lists and pages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from glidemq_async.functions.settings import StoredSettings
from glidemq_async.ops.settings import SettingOrigin, setting_of_schedule
from glidemq_async.queues.inspection import WorkerInfo, WorkerState
from glidemq_async.queues.schedulers import JobScheduler
from glidemq_async.schedules.schedule import schedule_text
from glidemq_async.stored.record import State

READY: Final[tuple[State, ...]] = ("waiting", "prioritized", "key-waiting", "rate-limited")
"""States of jobs that wait only for a worker or for a limit."""
LATE_SECONDS: Final = 10.0
"""Seconds after a fire time from which on a scheduler is late."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a queue.

    `by` is its author and `until` its end. None means an unknown note, an unknown author, or a pause without an end.
    """

    note: str | None = None
    by: str | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class LimitsShown:
    """The limits of a queue. None means no limit. `stopped_until` is the end of a stop by RateLimited."""

    concurrency: int | None = None
    rate_max: int | None = None
    rate_seconds: float | None = None
    stopped_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """The figures of one queue.

    - `oldest_waiting_seconds` is the age of the oldest job among the ones that start next: the first one in FIFO order,
      and up to 20 of each other order.
    - `in_rate` and `out_rate` are jobs per second. `out_rate` is measured over the last 5 minutes. `in_rate` needs two
      readings of the queue by this process, and is None until then.
    - `failure_ratio` is the share of failures among the jobs that ended in the last hour, 0 without any.
    - `backlog_seconds` is the time in which the ready jobs end at the present rate, None if none ends.
    - `slots` is the number of jobs that the live workers run at the same time, `running` is the number of running jobs.
    - `trend` is the number of jobs that ended in each of the last 30 minutes, the oldest first.
    """

    name: str
    counts: dict[State, int]
    oldest_waiting_seconds: float | None
    in_rate: float | None
    out_rate: float
    failed_last_hour: int
    failure_ratio: float
    backlog_seconds: float | None
    workers: int
    slots: int
    running: int
    paused: Pause | None
    limits: LimitsShown
    trend: tuple[int, ...]
    schedules: int
    late_schedule_seconds: float | None
    is_dead_letter: bool = False
    """True for a queue without workers that receives dead letters. Its jobs wait for people."""

    @property
    def ready(self) -> int:
        """The number of jobs that wait for a worker."""
        return sum([self.counts[state] for state in READY])


@dataclass(frozen=True, slots=True)
class MinutePoint:
    """The number of jobs that ended in one minute."""

    minute: datetime
    completed: int
    failed: int


@dataclass(frozen=True, slots=True)
class QueueDetail:
    """A queue with its figures of each of the last 60 minutes, its workers and its schedules."""

    summary: QueueSummary
    minutes: tuple[MinutePoint, ...]
    workers: tuple[QueueWorker, ...]
    schedules: tuple[ScheduleRow, ...]
    as_of: datetime


@dataclass(frozen=True, slots=True)
class QueueWorker:
    """A worker of one queue; see WorkerInfo."""

    queue: str
    name: str
    host: str
    pid: int
    concurrency: int
    running: int
    started_at: datetime
    last_seen: datetime
    state: WorkerState = "running"
    version: str = ""


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A job scheduler of one queue.

    `late_seconds` is the time since its next fire time, if this is in the past. `paused` says who has paused it and
    why. `origin` is "operator" for a scheduler that is paused, otherwise "code" if an app declares it with `mq.cron`.
    """

    queue: str
    id: str
    name: str
    schedule: str
    next_at: datetime | None
    last_at: datetime | None
    last_job_id: str | None
    fired: int
    skipped: int
    is_paused: bool
    late_seconds: float | None
    paused: Pause | None = None
    origin: SettingOrigin = "none"


def worker_row(queue: str, info: WorkerInfo) -> QueueWorker:
    """Return a worker of a queue as a row."""
    return QueueWorker(
        queue,
        info.name,
        info.host,
        info.pid,
        info.concurrency,
        info.running,
        info.started_at,
        info.last_seen,
        info.state,
        info.version,
    )


def schedule_row(queue: str, found: JobScheduler[Any], now: int, stored: StoredSettings) -> ScheduleRow:
    """Return a job scheduler of a queue as a row. `now` is the time of the server in ms."""
    setting = setting_of_schedule(stored, found.id)
    late = None if found.next_at is None else now / 1000 - found.next_at.timestamp()
    return ScheduleRow(
        queue,
        found.id,
        found.name,
        schedule_text(found.schedule),
        found.next_at,
        found.last_at,
        found.last_job_id,
        found.fired,
        found.skipped,
        found.is_paused,
        late if late is not None and late > LATE_SECONDS else None,
        Pause(setting.note or None, setting.who or None) if found.is_paused else None,
        setting.origin,
    )
