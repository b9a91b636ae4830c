"""The data and changes of the terminal view, through the operations core."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from glidemq_async.errors import GlideMQError, JobNotFound
from glidemq_async.filters.filter import Filter
from glidemq_async.ops.documents import as_document
from glidemq_async.ops.listing import JobSelection
from glidemq_async.ops.live import LOST
from glidemq_async.ops.queue_rows import READY
from glidemq_async.queues.inspection import task_parameters
from glidemq_async.stored.call import named_call

if TYPE_CHECKING:
    from glidemq_async.jobs.job import Job
    from glidemq_async.ops.core import Ops
    from glidemq_async.queues.failures import FailureGroup

_TOPIC: Final = "overview"
MOST_JOBS: Final = 200
"""Number of jobs in a list."""

_BARS: Final = " ▁▂▃▄▅▆▇█"

JobAction: TypeAlias = Literal["retry", "cancel", "promote", "delete"]


@dataclass(frozen=True, slots=True)
class QueueLine:
    """The figures of one queue."""

    name: str
    counts: dict[str, int]
    oldest_seconds: float | None
    out_rate: float
    workers: int
    paused: bool

    @property
    def waiting(self) -> int:
        """The number of jobs that wait for a worker."""
        return sum(self.counts[state] for state in READY)


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job in a list."""

    queue: str
    id: str
    name: str
    state: str
    key: str | None
    attempts: int
    created_at: datetime | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class FailureLine:
    """A failure group in a list: the filter that finds its jobs, and the cells of its row."""

    queue: str
    wanted: str
    cells: tuple[object, ...]

    @classmethod
    def of(cls, group: FailureGroup) -> FailureLine:
        """Return the line of a group."""
        began = group.began_with or ""
        row = (group.error_type, group.count, sparkline(group.trend), ago(group.last_at), group.name, group.queue)
        return cls(group.queue, f"group:{group.fingerprint}", (*row, began, group.place, group.message))


@dataclass(frozen=True, slots=True)
class Reading:
    """All queues at one moment, and the verdict on them: "lost" if they cannot be read. `sentence` says why."""

    queues: tuple[QueueLine, ...]
    verdict: str = "ok"
    sentence: str = ""

    @classmethod
    def of(cls, overview: dict[str, Any]) -> Reading:
        """Return the reading of a live document."""
        reasons = overview["reasons"]
        further = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        queues = tuple(map(_queue_line, overview["queues"]))
        return cls(queues, overview["verdict"], f"{reasons[0]}{further}" if reasons else _totals(queues))


def _queue_line(summary: dict[str, Any]) -> QueueLine:
    return QueueLine(
        summary["name"],
        summary["counts"],
        summary["oldest_waiting_seconds"],
        summary["out_rate"],
        summary["workers"],
        summary["paused"] is not None,
    )


def _totals(queues: Sequence[QueueLine]) -> str:
    waiting, active = sum(one.waiting for one in queues), sum(one.counts["active"] for one in queues)
    return f"{len(queues):,} {'queue' if len(queues) == 1 else 'queues'}, {jobs(waiting)} waiting, {active:,} running"


class TopSource:
    """Reads queues, jobs, workers, schedulers and audit lines, and makes changes."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops

    async def readings(self) -> AsyncIterator[Reading]:
        """Iterate over readings of all queues, at most one in a second, while something changes."""
        last = Reading(())
        async with aclosing(self._ops.live.subscribe([_TOPIC])) as documents:
            async for document in documents:
                found = json.loads(document.text)
                last = (
                    Reading.of(found)
                    if document.topic == _TOPIC
                    else replace(last, verdict=LOST, sentence=f"the queues cannot be read: {found['detail']}")
                )
                yield last

    async def jobs(self, queue: str | None, wanted: str) -> list[JobLine]:
        """Return the first jobs that match a filter, in one queue or in all. Raises FilterError."""
        found = await self._ops.list_jobs(JobSelection(Filter(wanted), limit=MOST_JOBS), queue)
        return [_line(job) for job, _ in found.jobs]

    async def failures(self, queue: str | None) -> list[FailureLine]:
        """Return the failure groups of a queue or of all queues, the one that failed last first."""
        return [FailureLine.of(group) for group in await self._ops.failures(queue)]

    async def workers(self, queue: str | None) -> list[list[object]]:
        """Return the live workers as rows."""
        rows: list[list[object]] = []
        for name in [queue] if queue is not None else await self._ops.queue_names():
            for one in await (await self._ops.queue(name)).get_workers():
                running = f"{one.running} of {one.concurrency}"
                rows.append([one.name, name, running, ago(one.started_at), ago(one.last_seen), one.host, one.pid])
        return rows

    async def schedulers(self, queue: str | None) -> list[list[object]]:
        """Return the job schedulers as rows."""
        rows: list[list[object]] = []
        for name in [queue] if queue is not None else await self._ops.queue_names():
            for one in await (await self._ops.queue(name)).get_job_schedulers():
                when = one.schedule.cron or f"every {one.schedule.every} s"
                state = "paused" if one.is_paused else ""
                rows.append([one.id, name, one.name, when, state, ago(one.next_at), ago(one.last_at), one.fired])
        return rows

    async def audit(self) -> list[list[object]]:
        """Return the newest audit lines as rows."""
        lines = (await self._ops.audit.read(100)).lines
        return [
            [
                ago(one.at),
                f"{one.source}:{one.actor}",
                one.action,
                one.queue,
                one.target,
                one.count,
                one.reason,
                one.result,
            ]
            for one in lines
        ]

    async def describe(self, queue: str, job_id: str) -> str:
        """Return everything about a job as text. Raises JobNotFound."""
        job = await self._job(queue, job_id)
        fields: dict[str, object] = {
            "name": job.name,
            "state": job.state,
            "key": job.key,
            "priority": job.priority or None,
            "attempts": job.attempts_made,
            "created": job.created_at,
            "started": job.processed_at,
            "ended": job.finished_at,
            "due": job.due_at,
            "cause": job.failure_cause,
            "reason": job.failed_reason,
        }
        tasks = await task_parameters(await self._ops.queue(queue))
        for name, read in (
            ("data", lambda: named_call(job.data, tasks.get(job.name))),
            ("progress", lambda: job.progress),
            ("result", lambda: job.return_value),
        ):
            try:
                fields[name] = read()
            except GlideMQError as error:  # sealed by codecs, or damaged
                fields[name] = f"({error})"
        lines = [f"{name:<9} {_text(value)}" for name, value in fields.items() if value is not None]
        return "\n".join([*lines, *(["", job.stacktrace] if job.stacktrace else [])])

    async def log(self, queue: str, job_id: str) -> str:
        """Return the log lines of a job."""
        lines = await (await self._ops.queue(queue)).get_job_logs(job_id)
        return "\n".join(lines) or "the job has written no log lines"

    async def explain(self, queue: str, job_id: str) -> str:
        """Return why a job does not run. Raises JobNotFound."""
        found = await (await self._ops.queue(queue)).explain(job_id)
        return "\n".join([found.summary, "", *(f"- {gate.text}" for gate in found.gates)]).rstrip()

    async def change_job(self, action: JobAction, line: JobLine, reason: str) -> None:
        """Change one job, and write an audit line. Raises JobNotFound, JobStateError."""
        if action == "retry":
            await self._ops.retry(line.queue, line.id, reason=reason)
        elif action == "cancel":
            await self._ops.revoke(line.queue, line.id, reason=reason)
        elif action == "promote":
            await self._ops.promote(line.queue, line.id, reason=reason)
        else:
            await self._ops.delete(line.queue, line.id, reason=reason)

    async def set_paused(self, queue: str, reason: str, *, paused: bool) -> None:
        """Pause or resume a queue, and write an audit line."""
        if paused:
            await self._ops.pause(queue, note=reason)
        else:
            await self._ops.resume(queue, reason=reason)

    async def _job(self, queue: str, job_id: str) -> Job[Any, Any]:
        found = await (await self._ops.queue(queue)).get_job(job_id)
        if found is None:
            raise JobNotFound(f"queue {queue!r} has no job {job_id!r} any more")
        return found


def ago(instant: datetime | None) -> str:
    """Return the age of an instant, such as `5m`, or `in 5m`."""
    if instant is None:
        return ""
    seconds = (datetime.now(UTC) - instant).total_seconds()
    return f"in {span(-seconds)}" if seconds <= -1 else span(abs(seconds))


def span(seconds: float) -> str:
    """Return a duration as one number with its unit, such as `5m`."""
    units = ((86_400, "d"), (3_600, "h"), (60, "m"))
    size, unit = next(((size, unit) for size, unit in units if seconds >= 2 * size), (1, "s"))
    return f"{int(seconds // size)}{unit}"


def sparkline(trend: Sequence[int]) -> str:
    """Return numbers as a row of bars, two neighbours in each bar. A bar that is not empty shows at least one count."""
    sums = [sum(trend[at : at + 2]) for at in range(0, len(trend), 2)]
    most = max(sums, default=0)
    return "".join(_BARS[-(-one * (len(_BARS) - 1) // most) if most else 0] for one in sums)


def jobs(count: int) -> str:
    """Return a number of jobs in words."""
    return "1 job" if count == 1 else f"{count:,} jobs"


def _line(job: Job[Any, Any]) -> JobLine:
    return JobLine(
        job.queue, job.id, job.name, job.state, job.key, job.attempts_made, job.created_at, job.failed_reason
    )


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    document = as_document(value)
    return document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)
