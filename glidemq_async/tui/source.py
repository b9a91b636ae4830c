"""What the terminal view reads and changes, through the operations core."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from glidemq_async._internal.waits import together
from glidemq_async.errors import GlideMQError, JobNotFound
from glidemq_async.filters.filter import Filter
from glidemq_async.filters.plan import FilterPlan
from glidemq_async.ops.documents import as_document
from glidemq_async.queues.finding import task_parameters
from glidemq_async.stored.call import named_call
from glidemq_async.stored.record import STATES

if TYPE_CHECKING:
    from glidemq_async.jobs.job import Job
    from glidemq_async.ops.core import Ops

SECONDS: Final = 1.0
"""The least time between two readings of the queues."""
SHARE: Final = 0.2
"""The share of the time that readings take at most. With many queues the time between two of them grows."""
AT_ONCE: Final = 50
"""Number of queues that are read at the same time."""
MOST_JOBS: Final = 200
"""Number of jobs in a list."""
READY: Final = ("waiting", "prioritized", "key-waiting", "rate-limited")

JobAction: TypeAlias = Literal["retry", "cancel", "promote", "delete"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QueueLine:
    """The figures of one queue."""

    name: str
    counts: dict[str, int]
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
class Reading:
    """All queues at one moment. With an `error` they could not be read."""

    queues: tuple[QueueLine, ...]
    error: str = ""

    @property
    def verdict(self) -> tuple[str, str]:
        """The state of all queues as one word, and the sentence of the header."""
        if self.error:
            return "lost", f"the queues cannot be read: {self.error}"
        stopped = [one for one in self.queues if one.waiting and not one.workers and not one.paused]
        paused = [one for one in self.queues if one.waiting and one.paused]
        if stopped:
            return "stopped", f"{stopped[0].name} has {jobs(stopped[0].waiting)} waiting and no worker"
        if paused:
            return "behind", f"{paused[0].name} is paused with {jobs(paused[0].waiting)} waiting"
        waiting, active = sum(one.waiting for one in self.queues), sum(one.counts["active"] for one in self.queues)
        return "ok", f"{len(self.queues):,} queues, {jobs(waiting)} waiting, {active:,} running"


class TopSource:
    """Reads queues, jobs, workers, schedulers and audit lines, and makes changes."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops

    async def readings(self) -> AsyncIterator[Reading]:
        """Iterate over readings of all queues, at most one in a second."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                yield Reading(tuple(await self.queues()))
            except GlideMQError as error:
                yield Reading((), str(error))
            used = loop.time() - began
            await asyncio.sleep(max(SECONDS, used / SHARE))

    async def queues(self) -> list[QueueLine]:
        """Return the figures of all queues. A queue that cannot be read is left out."""
        found = await _some_at_once([self._queue(name) for name in await self._ops.queue_names()])
        return [one for one in found if one is not None]

    async def _queue(self, name: str) -> QueueLine | None:
        try:
            queue = await self._ops.queue(name)
            counts = await queue.get_job_counts()
            workers, paused = len(await queue.get_workers()), await queue.is_paused()
        except (GlideMQError, LookupError):  # removed meanwhile, or of another program
            return None
        return QueueLine(name, {state: counts[state] for state in STATES}, workers, paused)

    async def jobs(self, queue: str | None, wanted: str) -> list[JobLine]:
        """Return the first jobs that match a filter, in one queue or in all. Raises FilterError."""
        checked = Filter(wanted)
        plan = FilterPlan(checked)
        names = [queue] if queue is not None else await self._ops.queue_names()
        found: list[JobLine] = []
        for name in names:
            if plan.may_be_in(name) and len(found) < MOST_JOBS:
                jobs = await (await self._ops.queue(name)).find(checked, MOST_JOBS - len(found))
                found += [_line(job) for job in jobs]
        return found

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
        name = "revoke" if action == "cancel" else action
        async with self._ops.changing(name, line.queue, line.id, reason=reason):
            job = await self._job(line.queue, line.id)
            if action == "retry":
                await job.retry()
            elif action == "cancel":
                await job.revoke(reason or None)
            elif action == "promote":
                await job.promote()
            else:
                await job.remove()

    async def set_paused(self, queue: str, reason: str, *, paused: bool) -> None:
        """Pause or resume a queue, and write an audit line."""
        opened = await self._ops.queue(queue)
        async with self._ops.changing("pause" if paused else "resume", queue, reason=reason):
            await (opened.pause() if paused else opened.resume())

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
    size, unit = next(
        ((size, unit) for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")) if abs(seconds) >= 2 * size), (1, "s")
    )
    shown = f"{int(abs(seconds) // size)}{unit}"
    return f"in {shown}" if seconds <= -1 else shown


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


async def _some_at_once(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    found: list[T] = []
    for at in range(0, len(calls), AT_ONCE):
        found += await together(calls[at : at + AT_ONCE])
    return found
