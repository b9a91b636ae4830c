"""The state of all queues of a prefix: is the work done in time, and if not, why not."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from glidemq_async.durations import from_ms
from glidemq_async.functions.summary import QueueFigures
from glidemq_async.ops.alerts.episodes import MOST_OPEN, AlertEpisode, read_episodes
from glidemq_async.ops.audit import AuditLine
from glidemq_async.ops.connections import Connections
from glidemq_async.ops.errors import QueueNotFound
from glidemq_async.ops.failures import FailureGroup, RecentFailures
from glidemq_async.ops.queue_rows import (
    MinutePoint,
    QueueDetail,
    QueueSummary,
    QueueWorker,
    ScheduleRow,
    schedule_row,
    worker_row,
)
from glidemq_async.ops.queue_summaries import CHART_MINUTES, QueueSummaries
from glidemq_async.ops.verdicts import Verdict, judge
from glidemq_async.queues.limits import stored_settings
from glidemq_async.stored.record import STATES, State


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


class Overviews:
    """The state of queues, with their workers and schedules. All actors of a core share it."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._summaries = connections.part(QueueSummaries)

    async def names(self) -> list[str]:
        """Return the names of the queues; see `Connections.known_names`."""
        return await self._summaries.names()

    async def summaries(self, names: Sequence[str] | None = None) -> list[QueueSummary]:
        """Return the figures of these queues, or of all. A queue that cannot be read is left out."""
        wanted = await self.names() if names is None else names
        return [summary for _, summary in await self._summaries.read(wanted)]

    async def overview(self, names: Sequence[str] | None = None, *, audit: Iterable[AuditLine] = ()) -> Overview:
        """Return the state of these queues, or of all."""
        wanted = await self.names() if names is None else names
        rows = await self._summaries.read(wanted)
        now = max((figures.now for figures, _ in rows), default=round(time.time() * 1000))
        summaries = tuple(summary for _, summary in rows)
        alerts = tuple(await read_episodes(self._connections, "open", MOST_OPEN))
        verdict, reasons = judge(summaries, alerts)
        failing = sorted((each for each in summaries if _has_failures(each)), key=lambda each: -each.failed_last_hour)
        unreadable = self._summaries.unreadable
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
            unreadable={name: unreadable[name] for name in wanted if name in unreadable},
        )

    async def detail(self, name: str) -> QueueDetail:
        """Return a queue. Raises QueueNotFound."""
        queue = await self._connections.queue(name)
        rows = await self._summaries.read([name])
        if not rows:
            raise QueueNotFound(name, await self.names())
        [(figures, summary)] = rows
        workers = tuple(worker_row(name, each) for each in await queue.get_workers())
        schedules = await self.schedules([name]) if summary.schedules else []
        minutes = _minutes([figures], figures.now)
        return QueueDetail(summary, minutes, workers, tuple(schedules), from_ms(figures.now))

    async def workers(self, names: Sequence[str] | None = None) -> list[QueueWorker]:
        """Return the live workers of these queues, or of all."""
        found: list[QueueWorker] = []
        with_workers = [summary.name for summary in await self.summaries(names) if summary.workers]
        for queue in await self._connections.readable_queues(with_workers):
            found += [worker_row(queue.name, each) for each in await queue.get_workers()]
        return found

    async def schedules(self, names: Sequence[str] | None = None) -> list[ScheduleRow]:
        """Return the job schedulers of these queues, or of all, the next ones first."""
        found: list[ScheduleRow] = []
        rows = await self._summaries.read(await self.names() if names is None else names)
        now = {summary.name: figures.now for figures, summary in rows if summary.schedules}
        for queue in await self._connections.readable_queues([*now]):
            schedulers = await queue.get_job_schedulers()
            stored = await stored_settings(queue)
            found += [schedule_row(queue.name, each, now[queue.name], stored) for each in schedulers]
        return sorted(found, key=lambda row: (row.next_at is None, row.next_at or row.last_at, row.queue, row.id))


def only(overview: Overview, names: Iterable[str]) -> Overview:
    """Return the part of an overview about some of its queues. Its throughput still counts all queues."""
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


def _has_failures(queue: QueueSummary) -> bool:
    return queue.failed_last_hour > 0 or queue.counts["failed"] > 0
