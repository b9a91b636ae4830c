"""Jobs as rows and details, for lists and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from glidemq_async.errors import CodecError, SerializationError
from glidemq_async.jobs.job import Job
from glidemq_async.options.job_options import explicit
from glidemq_async.queues.operations import JobRow
from glidemq_async.stored.call import TaskParameters, named_call
from glidemq_async.stored.dead_letter import DeadLetter
from glidemq_async.stored.flow import JobRef

__all__ = ["JobDetail", "JobRow", "detail_of", "row_of"]


@dataclass(frozen=True, slots=True)
class JobDetail:
    """Everything about one job.

    `data` has the arguments of a task by their names. A payload that cannot be decoded is None: `unreadable` has the
    reason by the name of the payload, and `sealed` names the payloads that codecs refused.
    """

    row: JobRow
    data: object
    options: Mapping[str, object]
    progress: object
    return_value: object
    stacktrace: str | None
    logs: list[str]
    processed_at: datetime | None
    failure_cause: str | None
    dead_letter: DeadLetter | None
    parents: tuple[JobRef, ...]
    unreadable: Mapping[str, str] = field(default_factory=dict[str, str])
    sealed: tuple[str, ...] = ()


def row_of(job: Job[Any, Any]) -> JobRow:
    """Return a job as a row."""
    return JobRow(
        job.queue,
        job.id,
        job.name,
        job.state,
        job.key,
        job.priority,
        job.attempts_made,
        job.created_at,
        job.due_at,
        job.finished_at,
        job.failed_reason,
        job.failure_group,
    )


def detail_of(job: Job[Any, Any], tasks: TaskParameters, logs: list[str]) -> JobDetail:
    """Return everything about a job."""
    unreadable: dict[str, str] = {}
    sealed: list[str] = []

    def read(name: str, get: Callable[[], object]) -> Any:
        try:
            return get()
        except SerializationError as error:
            unreadable[name] = str(error)
            if isinstance(error, CodecError):
                sealed.append(name)
            return None

    return JobDetail(
        row_of(job),
        read("data", lambda: named_call(job.data, tasks.get(job.name))),
        read("options", lambda: explicit(job.options)) or {},
        read("progress", lambda: job.progress),
        read("return_value", lambda: job.return_value),
        job.stacktrace,
        logs,
        job.processed_at,
        job.failure_cause,
        job.dead_letter,
        job.parents,
        unreadable,
        tuple(sealed),
    )
