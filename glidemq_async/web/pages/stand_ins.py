"""The calls of pages on the operations core. Parts that the core lacks are served by the methods of Queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, cast

from glidemq_async.errors import JobNotFound
from glidemq_async.filters.filter import Filter
from glidemq_async.jobs.job import Job
from glidemq_async.ops.core import Ops
from glidemq_async.queues.explanation import Explanation
from glidemq_async.queues.failures import FailureGroup

Call = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class _Row:
    queue: str
    id: str
    name: str
    state: str
    key: str | None
    attempts_made: int
    created_at: datetime | None
    due_at: datetime | None
    finished_at: datetime | None
    failed_reason: str | None
    failure_group: str | None = None


@dataclass(frozen=True, slots=True)
class _Page:
    jobs: list[_Row]
    cursor: str | None
    searched: int
    as_of: datetime


@dataclass(frozen=True, slots=True)
class _Detail:
    row: _Row
    data: Any
    options: Any
    progress: Any
    return_value: Any
    stacktrace: str | None
    logs: list[str]
    explanation: Any = None
    history: list[Any] = field(default_factory=list[Any])


@dataclass(frozen=True, slots=True)
class _Setting:
    name: str
    value: object
    key: str | None = None
    declared: str | None = None
    origin: str = "store"
    note: str = ""
    who: str = ""
    at: datetime | None = None


async def _find(ops: Ops, text: str, *, limit: int = 50, cursor: str | None = None) -> _Page:
    Filter(text)  # a mistake is reported even if there is no queue
    skip = int(cursor or 0)
    rows: list[_Row] = []
    for name in await ops.queue_names():
        queue = await ops.queue(name)
        found = await queue.find(text, limit=skip + limit + 1 - len(rows), newest_first=True)
        rows += [_row(name, job) for job in found]
        if len(rows) > skip + limit:
            break
    following = str(skip + limit) if len(rows) > skip + limit else None
    return _Page(rows[skip : skip + limit], following, len(rows), datetime.now(UTC))


def _row(queue: str, job: Job[Any, Any]) -> _Row:
    return _Row(
        queue,
        job.id,
        job.name,
        job.state,
        job.options.key,
        job.attempts_made,
        job.created_at,
        None,
        job.finished_at,
        job.failed_reason,
    )


async def _job(ops: Ops, queue: str, job_id: str) -> _Detail:
    found = await ops.queue(queue)
    job = await found.get_job(job_id)
    if job is None:
        raise JobNotFound(f"queue {queue!r} has no job {job_id!r}")
    data = _arguments(job.data)
    logs = await found.get_job_logs(job_id)
    return _Detail(_row(queue, job), data, job.options, job.progress, job.return_value, job.stacktrace, logs)


def _arguments(data: Any) -> Any:
    if not isinstance(data, dict) or set(cast("dict[str, Any]", data)) != {"a", "k"}:
        return cast("Any", data)
    found = cast("dict[str, Any]", data)
    return {f"#{place}": value for place, value in enumerate(found["a"], 1)} | dict(found["k"])


async def _failures(ops: Ops, queue: str | None = None) -> list[FailureGroup]:
    names = await ops.queue_names() if queue is None else [queue]
    found = [group for name in names for group in await (await ops.queue(name)).get_failure_groups()]
    return sorted(found, key=lambda group: group.last_at, reverse=True)


async def _failure(ops: Ops, fingerprint: str) -> FailureGroup | None:
    return next((group for group in await _failures(ops) if group.fingerprint == fingerprint), None)


async def _explain(ops: Ops, queue: str, job_id: str) -> Explanation:
    return await (await ops.queue(queue)).explain(job_id)


async def _operations(_ops: Ops) -> list[Any]:
    return []


async def _settings(ops: Ops, queue: str) -> list[_Setting]:
    found = await ops.queue(queue)
    concurrency, rate = await found.get_global_concurrency(), await found.get_global_rate_limit()
    rows = [_Setting("concurrency", concurrency)] if concurrency is not None else []
    if rate is not None:
        rows.append(_Setting("rate limit", f"{rate.max} in {rate.duration} s"))
    return rows


async def _retry(ops: Ops, queue: str, job_id: str, *, reason: str = "") -> None:
    async with ops.changing("retry", queue, job_id, reason=reason):
        await (await _stored(ops, queue, job_id)).retry()


async def _revoke(ops: Ops, queue: str, job_id: str, *, reason: str = "") -> None:
    async with ops.changing("revoke", queue, job_id, reason=reason):
        await (await ops.queue(queue)).revoke(job_id, reason or None)


async def _promote(ops: Ops, queue: str, job_id: str, *, reason: str = "") -> None:
    async with ops.changing("promote", queue, job_id, reason=reason):
        await (await _stored(ops, queue, job_id)).promote()


async def _delay(ops: Ops, queue: str, job_id: str, delay: float, *, reason: str = "") -> None:
    async with ops.changing("delay", queue, job_id, reason=reason, delay=delay):
        await (await _stored(ops, queue, job_id)).change_delay(delay)


async def _change_priority(ops: Ops, queue: str, job_id: str, priority: int, *, reason: str = "") -> None:
    async with ops.changing("change_priority", queue, job_id, reason=reason, priority=priority):
        await (await _stored(ops, queue, job_id)).change_priority(priority)


async def _delete(ops: Ops, queue: str, job_id: str, *, reason: str = "") -> None:
    async with ops.changing("delete", queue, job_id, reason=reason):
        await (await ops.queue(queue)).remove(job_id)


async def _signal(ops: Ops, queue: str, job_id: str, name: str, data: object, *, reason: str = "") -> None:
    async with ops.changing("signal", queue, job_id, reason=reason, signal=name):
        await (await ops.queue(queue)).signal(job_id, name, data)


async def _stored(ops: Ops, queue: str, job_id: str) -> Job[Any, Any]:
    job = await (await ops.queue(queue)).get_job(job_id)
    if job is None:
        raise JobNotFound(f"queue {queue!r} has no job {job_id!r}")
    return job


async def _pause(ops: Ops, queue: str, *, note: str = "", until: datetime | None = None, reason: str = "") -> None:
    async with ops.changing("pause", queue, reason=reason or note, until=until):
        await (await ops.queue(queue)).pause()


async def _resume(ops: Ops, queue: str, *, reason: str = "") -> None:
    async with ops.changing("resume", queue, reason=reason):
        await (await ops.queue(queue)).resume()


async def _set_limits(ops: Ops, queue: str, *, reason: str = "", note: str = "", **limits: Any) -> None:
    async with ops.changing("set_limits", queue, reason=reason or note, **limits):
        found = await ops.queue(queue)
        await found.set_global_concurrency(limits["concurrency"])
        if limits["rate_limit"] is None:
            await found.remove_global_rate_limit()
        else:
            await found.set_global_rate_limit(limits["rate_limit"])


async def _pause_key(ops: Ops, queue: str, key: str, seconds: float, *, reason: str = "") -> None:
    async with ops.changing("pause_key", queue, key, reason=reason, seconds=seconds):
        await (await ops.queue(queue)).pause_key(key, seconds)


async def _set_key_limits(ops: Ops, queue: str, key: str, *, reason: str = "", **limits: Any) -> None:
    async with ops.changing("set_key_limits", queue, key, reason=reason, **limits):
        await (await ops.queue(queue)).set_key_limits(key, **limits)


async def _drain(ops: Ops, queue: str, *, reason: str = "") -> int:
    async with ops.changing("drain", queue, reason=reason) as change:
        change.count = await (await ops.queue(queue)).drain()
    return change.count


async def _clean(ops: Ops, queue: str, grace: float, *, state: Any = "completed", reason: str = "") -> list[str]:
    async with ops.changing("clean", queue, reason=reason, state=state, grace=grace) as change:
        removed = await (await ops.queue(queue)).clean(grace, 1_000, state)
        change.count = len(removed)
    return removed


async def _obliterate(ops: Ops, queue: str, ticket: str, *, reason: str = "") -> None:
    async with ops.changing("obliterate", queue, reason=reason, ticket=ticket) as change:
        change.count = await (await ops.queue(queue)).obliterate()


async def _fire_schedule(ops: Ops, queue: str, schedule: str, *, reason: str = "") -> None:
    async with ops.changing("fire_schedule", queue, schedule, reason=reason):
        await (await ops.queue(queue)).trigger_job_scheduler(schedule)


async def _pause_schedule(ops: Ops, queue: str, schedule: str, *, reason: str = "") -> None:
    async with ops.changing("pause_schedule", queue, schedule, reason=reason):
        await (await ops.queue(queue)).pause_job_scheduler(schedule)


async def _resume_schedule(ops: Ops, queue: str, schedule: str, *, reason: str = "") -> None:
    async with ops.changing("resume_schedule", queue, schedule, reason=reason):
        await (await ops.queue(queue)).resume_job_scheduler(schedule)


async def _remove_schedule(ops: Ops, queue: str, schedule: str, *, reason: str = "") -> None:
    async with ops.changing("remove_schedule", queue, schedule, reason=reason):
        await (await ops.queue(queue)).remove_job_scheduler(schedule)


STAND_INS: Final[Mapping[str, Call]] = {
    "find": _find,
    "job": _job,
    "explain": _explain,
    "failures": _failures,
    "failure": _failure,
    "operations": _operations,
    "settings": _settings,
    "retry": _retry,
    "revoke": _revoke,
    "promote": _promote,
    "delay": _delay,
    "change_priority": _change_priority,
    "delete": _delete,
    "signal": _signal,
    "pause": _pause,
    "resume": _resume,
    "set_limits": _set_limits,
    "pause_key": _pause_key,
    "set_key_limits": _set_key_limits,
    "drain": _drain,
    "clean": _clean,
    "obliterate": _obliterate,
    "fire_schedule": _fire_schedule,
    "pause_schedule": _pause_schedule,
    "resume_schedule": _resume_schedule,
    "remove_schedule": _remove_schedule,
}


def offers(ops: object, name: str) -> bool:
    """Return whether pages can make a call."""
    return name in STAND_INS or hasattr(ops, name)


class Core:
    """The operations core as pages call it."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops

    # The documents of the core are read by templates, which know no types.
    def __getattr__(self, name: str) -> Any:
        own = getattr(self._ops, name, None)
        if own is not None:
            return own
        if name not in STAND_INS:
            raise AttributeError(f"the operations core has no {name!r}")
        return partial(STAND_INS[name], self._ops)
