"""The figures of all queues of a prefix: is the work done in time, and if not, why not."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, cast

import msgpack

from glidemq_async._internal.waits import together
from glidemq_async.client.queue_client import older_layout
from glidemq_async.durations import from_ms
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.settings import StoredSettings
from glidemq_async.functions.summary import QueueFigures
from glidemq_async.ops.alerts.episodes import MOST_OPEN, AlertEpisode, read_episodes
from glidemq_async.ops.audit import AuditLine
from glidemq_async.ops.connections import Connections
from glidemq_async.ops.errors import QueueNotFound
from glidemq_async.ops.failures import FailureGroup, RecentFailures
from glidemq_async.ops.settings import SettingOrigin, pause_of, setting_of_schedule
from glidemq_async.queues.inspection import WorkerInfo, WorkerState
from glidemq_async.queues.limits import stored_settings
from glidemq_async.queues.schedulers import JobScheduler
from glidemq_async.schedules.schedule import schedule_text
from glidemq_async.storage import FunctionError
from glidemq_async.stored.names import QueueKeys
from glidemq_async.stored.record import FINAL, STATES, State

Verdict: TypeAlias = Literal["ok", "behind", "failing", "stopped"]
READY: Final[tuple[State, ...]] = ("waiting", "prioritized", "key-waiting", "rate-limited")
"""States of jobs that wait for a worker, and for nothing else but limits."""
BEHIND_SECONDS: Final = 60.0
"""Age of the oldest ready job above which a queue is behind."""
FAILING_RATIO: Final = 0.1
"""Share of failures among the jobs of the last hour above which a queue is failing."""
FEW_FAILURES: Final = 5
"""Number of failures below which a queue is never failing."""
LATE_SECONDS: Final = 10.0
"""Time after a fire time after which a scheduler is late."""
RATE_MINUTES: Final = 5
AT_ONCE: Final = 200
"""Number of queues that are read at the same time."""
CHART_MINUTES: Final = 60
TREND_MINUTES: Final = 30


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a queue, who has set it and why. None stands for an unknown author or note, and for no end."""

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

    - `oldest_waiting_seconds` is the age of the job that has waited longest among the next ones of each order.
    - `in_rate` and `out_rate` are jobs a second. `out_rate` is measured over the last 5 minutes. `in_rate` needs two
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
        return sum(self.counts[state] for state in READY)


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

    `late_seconds` is the time since its next fire time, if that is over. `paused` says who has paused it and why.
    `origin` is "operator" for a scheduler that is paused, otherwise "code" if an app declares it with `mq.cron`.
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


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of all queues.

    `verdict` is "stopped" if jobs wait and nothing runs them, "failing" if too many jobs fail, "behind" if jobs wait
    too long or a schedule is late, otherwise "ok". Open episodes of alerts count too. `reasons` say why, the most
    important first. `alerts` are the open episodes, at most 100.

    `failures` are the 20 groups that failed last, up to 5 seconds old. `unreadable` has the queues that cannot be read,
    for example because another program has written them, and why.
    """

    as_of: datetime
    verdict: Verdict
    reasons: tuple[str, ...]
    queues: tuple[QueueSummary, ...]
    totals: dict[State, int]
    throughput: tuple[MinutePoint, ...]
    failures: tuple[FailureGroup, ...]
    workers: int
    schedules_late: int
    audit: tuple[AuditLine, ...]
    alerts: tuple[AlertEpisode, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class _Seen:
    """What the last reading of a queue has shown: its time in ms, the jobs that had not ended, and the ends."""

    at: int
    open_jobs: int
    ended: Mapping[int, int] = field(default_factory=dict[int, int])
    rate: float | None = None


class Overviews:
    """Reads the figures of queues: one call for each queue, several at a time. All actors of a core share it."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._names: list[str] = []
        self._calls: dict[str, Functions] = {}
        self._seen: dict[str, _Seen] = {}
        self._slots: dict[bytes, int] = {}
        self._unreadable: dict[str, str] = {}
        self._dead_letters: dict[str, str] = {}
        """The queue that receives the dead letters of each queue."""

    async def names(self) -> list[str]:
        """Return the names of the queues; see `Connections.known_names`."""
        names = await self._connections.known_names()
        if names is not self._names:
            self._names = names
            known = set(names)
            self._dead_letters = {name: target for name, target in self._dead_letters.items() if name in known}
            self._seen = {name: seen for name, seen in self._seen.items() if name in known}
            self._unreadable = {name: why for name, why in self._unreadable.items() if name in known}
        return names

    async def summaries(self, names: Sequence[str] | None = None) -> list[QueueSummary]:
        """Return the figures of these queues, or of all. A queue that cannot be read is left out."""
        wanted = await self.names() if names is None else names
        return [summary for _, summary in await self._read(wanted)]

    async def overview(self, names: Sequence[str] | None = None, *, audit: Iterable[AuditLine] = ()) -> Overview:
        """Return the state of these queues, or of all."""
        wanted = await self.names() if names is None else names
        rows = await self._read(wanted)
        now = max((figures.now for figures, _ in rows), default=round(time.time() * 1000))
        summaries = tuple(summary for _, summary in rows)
        alerts = tuple(await read_episodes(self._connections, "open", MOST_OPEN))
        verdict, reasons = judge(summaries, alerts)
        failing = sorted((each for each in summaries if _has_failures(each)), key=lambda each: -each.failed_last_hour)
        failures = await self._connections.part(RecentFailures).read([each.name for each in failing])
        return Overview(
            as_of=from_ms(now),
            verdict=verdict,
            reasons=reasons,
            queues=summaries,
            totals={state: sum(each.counts[state] for each in summaries) for state in STATES},
            throughput=_minutes([figures for figures, _ in rows], now),
            failures=failures,
            workers=sum(each.workers for each in summaries),
            schedules_late=sum(1 for each in summaries if each.late_schedule_seconds is not None),
            audit=tuple(audit),
            alerts=alerts,
            unreadable={name: self._unreadable[name] for name in wanted if name in self._unreadable},
        )

    async def detail(self, name: str) -> QueueDetail:
        """Return a queue. Raises QueueNotFound."""
        queue = await self._connections.queue(name)
        rows = await self._read([name])
        if not rows:
            raise QueueNotFound(name, await self.names())
        [(figures, summary)] = rows
        workers = tuple(_worker(name, each) for each in await queue.get_workers())
        schedules = await self.schedules([name]) if summary.schedules else []
        minutes = _minutes([figures], figures.now)
        return QueueDetail(summary, minutes, workers, tuple(schedules), from_ms(figures.now))

    async def workers(self, names: Sequence[str] | None = None) -> list[QueueWorker]:
        """Return the live workers of these queues, or of all."""
        found: list[QueueWorker] = []
        with_workers = [summary.name for summary in await self.summaries(names) if summary.workers]
        for queue in await self._connections.readable_queues(with_workers):
            found += [_worker(queue.name, each) for each in await queue.get_workers()]
        return found

    async def schedules(self, names: Sequence[str] | None = None) -> list[ScheduleRow]:
        """Return the job schedulers of these queues, or of all, the next ones first."""
        found: list[ScheduleRow] = []
        rows = await self._read(await self.names() if names is None else names)
        now = {summary.name: figures.now for figures, summary in rows if summary.schedules}
        for queue in await self._connections.readable_queues([*now]):
            schedulers = await queue.get_job_schedulers()
            stored = await stored_settings(queue)
            found += [_schedule(queue.name, each, now[queue.name], stored) for each in schedulers]
        return sorted(found, key=lambda row: (row.next_at is None, row.next_at or row.last_at, row.queue, row.id))

    async def _read(self, names: Sequence[str]) -> list[tuple[QueueFigures, QueueSummary]]:
        found: list[tuple[str, tuple[QueueFigures, Pause | None]]] = []
        for at in range(0, len(names), AT_ONCE):
            part = names[at : at + AT_ONCE]
            read = await together(self._figures(name) for name in part)
            found += [(name, each) for name, each in zip(part, read, strict=True) if each]
        for name, (figures, _) in found:
            self._dead_letters[name] = figures.dead_letter
        targets = set(self._dead_letters.values())
        return [(each[0], self._summary(name, *each, is_target=name in targets)) for name, each in found]

    async def _figures(self, name: str) -> tuple[QueueFigures, Pause | None] | None:
        """Return the figures of a queue and its pause, or None for a queue that cannot be read."""
        calls = self._calls.get(name)
        if calls is None:
            keys = QueueKeys(self._connections.prefix, name)
            calls = self._calls[name] = Functions(self._connections.storage, keys.base)
        try:
            figures = await calls.summary.read()
            pause = await _pause(calls) if figures.paused else None
        except FunctionError as error:
            # Such a queue belongs to another program, or to another version of this one.
            if error.code not in {"INCOMPATIBLE", "WRONGTYPE", "MIGRATE"}:
                raise
            self._unreadable[name] = older_layout(name) if error.code == "MIGRATE" else error.message
            return None
        self._unreadable.pop(name, None)
        return figures, pause

    def _summary(self, name: str, figures: QueueFigures, pause: Pause | None, *, is_target: bool) -> QueueSummary:
        counts = cast("dict[State, int]", figures.counts)
        last = figures.now // 60_000
        ended = {
            minute: figures.completed.get(minute, 0) + figures.failed.get(minute, 0)
            for minute in figures.completed.keys() | figures.failed.keys()
        }
        seconds = (RATE_MINUTES - 1) * 60 + figures.now % 60_000 / 1000
        out_rate = sum(ended.get(last - back, 0) for back in range(RATE_MINUTES)) / max(seconds, 1)
        failed, total = sum(figures.failed.values()), sum(ended.values())
        ready = sum(counts[state] for state in READY)
        late = None if figures.next_fire is None else (figures.now - figures.next_fire) / 1000
        return QueueSummary(
            name=name,
            counts=counts,
            oldest_waiting_seconds=None if figures.oldest is None else max(0.0, (figures.now - figures.oldest) / 1000),
            in_rate=self._in_rate(name, figures, ended),
            out_rate=round(out_rate, 3),
            failed_last_hour=failed,
            failure_ratio=round(failed / total, 4) if total else 0.0,
            backlog_seconds=round(ready / out_rate, 1) if out_rate else (0.0 if not ready else None),
            workers=figures.alive,
            slots=self._slots_of(figures),
            running=counts["active"],
            paused=pause,
            limits=_limits(figures),
            trend=tuple(ended.get(last - back, 0) for back in reversed(range(TREND_MINUTES))),
            schedules=figures.schedules,
            late_schedule_seconds=late if late is not None and late > LATE_SECONDS else None,
            is_dead_letter=is_target and not figures.alive,
        )

    def _in_rate(self, name: str, figures: QueueFigures, ended: Mapping[int, int]) -> float | None:
        # Jobs that were added = the growth of the jobs that have not ended + the jobs that have ended since.
        open_jobs = sum(count for state, count in figures.counts.items() if state not in FINAL)
        before = self._seen.get(name)
        if before is None or figures.now - before.at > CHART_MINUTES * 60_000:
            self._seen[name] = _Seen(figures.now, open_jobs, ended)
            return None
        passed = figures.now - before.at
        if passed < 1000:
            return before.rate
        since = before.at // 60_000
        gone = sum(count - before.ended.get(minute, 0) for minute, count in ended.items() if minute >= since)
        rate = round(max(0.0, (open_jobs - before.open_jobs + gone) / passed * 1000), 3)
        self._seen[name] = _Seen(figures.now, open_jobs, ended, rate)
        return rate

    def _slots_of(self, figures: QueueFigures) -> int:
        known = self._slots
        if len(known) > 10_000:
            known.clear()
        for info in figures.workers:
            if info not in known:
                known[info] = _concurrency(info)
        return sum(known[info] for info in figures.workers)


def judge(queues: Sequence[QueueSummary], alerts: Sequence[AlertEpisode] = ()) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict on queues with these open episodes of alerts, and its reasons in words."""
    found: dict[Verdict, list[str]] = {"stopped": [], "failing": [], "behind": []}
    for episode in alerts:
        found[episode.verdict].append(f"alert {episode.rule}: {episode.text}")
    for queue in queues:
        for verdict, reason in _findings(queue):
            found[verdict].append(reason)
    for verdict, reasons in found.items():
        if reasons:
            return verdict, tuple(each for list_of in found.values() for each in list_of)
    return "ok", ()


def _findings(queue: QueueSummary) -> Iterable[tuple[Verdict, str]]:
    age = queue.oldest_waiting_seconds or 0.0
    if queue.is_dead_letter:
        return
    if queue.ready and queue.paused is not None:
        yield "behind", f"{queue.name} is paused with {_jobs(queue.ready)} waiting"
    elif queue.ready and not queue.workers and age > BEHIND_SECONDS / 2:
        yield "stopped", f"{queue.name} has {_jobs(queue.ready)} waiting and no worker"
    elif queue.ready and age > BEHIND_SECONDS:
        yield "behind", f"the oldest job of {queue.name} has waited {spoken(age)}{_outlook(queue)}"
    if queue.failed_last_hour >= FEW_FAILURES and queue.failure_ratio > FAILING_RATIO:
        yield "failing", f"{queue.failure_ratio:.0%} of the jobs of {queue.name} failed in the last hour"
    if queue.late_schedule_seconds is not None:
        yield "behind", f"a schedule of {queue.name} is {spoken(queue.late_schedule_seconds)} late"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _outlook(queue: QueueSummary) -> str:
    if queue.in_rate is not None and queue.in_rate > queue.out_rate > 0:
        return f", and jobs arrive faster ({queue.in_rate:.1f}/s) than they end ({queue.out_rate:.1f}/s)"
    if queue.backlog_seconds:
        return f", and the backlog ends in about {spoken(queue.backlog_seconds)}"
    return ""


def spoken(seconds: float) -> str:
    """Return a duration for people, such as `4 min`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def only(overview: Overview, names: Iterable[str]) -> Overview:
    """Return the part of an overview about some of its queues. Its throughput is of all queues."""
    wanted = set(names)
    queues = tuple(each for each in overview.queues if each.name in wanted)
    alerts = tuple(each for each in overview.alerts if each.queue in wanted)
    verdict, reasons = judge(queues, alerts)
    return replace(
        overview,
        alerts=alerts,
        verdict=verdict,
        reasons=reasons,
        queues=queues,
        totals={state: sum(each.counts[state] for each in queues) for state in STATES},
        failures=tuple(each for each in overview.failures if each.queue in wanted),
        workers=sum(each.workers for each in queues),
        schedules_late=sum(1 for each in queues if each.late_schedule_seconds is not None),
        audit=tuple(line for line in overview.audit if line.queue in wanted),
        unreadable={name: why for name, why in overview.unreadable.items() if name in wanted},
    )


def _minutes(rows: Sequence[QueueFigures], now: int) -> tuple[MinutePoint, ...]:
    last = now // 60_000
    completed: dict[int, int] = {}
    failed: dict[int, int] = {}
    for total, parts in ((completed, [row.completed for row in rows]), (failed, [row.failed for row in rows])):
        for part in parts:
            for minute, count in part.items():
                total[minute] = total.get(minute, 0) + count
    return tuple(
        MinutePoint(from_ms(minute * 60_000), completed.get(minute, 0), failed.get(minute, 0))
        for minute in range(last - CHART_MINUTES + 1, last + 1)
    )


def _limits(figures: QueueFigures) -> LimitsShown:
    limits = figures.limits
    is_stopped = limits.gate is not None and limits.gate > figures.now
    return LimitsShown(
        limits.concurrency,
        limits.rate_max,
        None if limits.rate_ms is None else limits.rate_ms / 1000,
        from_ms(limits.gate) if is_stopped and limits.gate is not None else None,
    )


async def _pause(calls: Functions) -> Pause | None:
    found = pause_of(await calls.settings.get())
    return None if found.value is None else Pause(found.note or None, found.who or None, found.until)


def _has_failures(queue: QueueSummary) -> bool:
    return queue.failed_last_hour > 0 or queue.counts["failed"] > 0


def _concurrency(info: bytes) -> int:
    try:
        found = cast("dict[str, object]", msgpack.unpackb(info) or {}) if info else {}
    except ValueError:  # written by another program
        return 0
    count = found.get("concurrency", 0)
    return count if isinstance(count, int) else 0


def _worker(queue: str, info: WorkerInfo) -> QueueWorker:
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


def _schedule(queue: str, found: JobScheduler[Any], now: int, stored: StoredSettings) -> ScheduleRow:
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
