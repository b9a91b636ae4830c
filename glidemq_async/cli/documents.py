"""The documents of jobs, workers and job schedulers that commands print. docs/cli.md describes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

from glidemq_async.cli.output import Document, instant
from glidemq_async.errors import CodecError, SerializationError
from glidemq_async.jobs.job import Job
from glidemq_async.ops.settings import Setting
from glidemq_async.options.job_options import explicit
from glidemq_async.queues.events import EventGap, QueueEvent
from glidemq_async.queues.inspection import WorkerInfo
from glidemq_async.queues.schedulers import JobScheduler
from glidemq_async.stored.call import TaskParameters, named_call
from glidemq_async.stored.dead_letter import DeadLetter


def cell_value(document: Document, column: str) -> object:
    """Return a field of a job's document for a table. An empty value differs from an unreadable one."""
    if column in document["sealed"]:
        return "(sealed)"
    return "(unreadable)" if column in document["unreadable"] else document[column]


def job_document(job: Job[Any, Any], tasks: TaskParameters) -> Document:
    """Return a job as a document. The arguments of a call of a task are shown by name; see `task_parameters`.

    A payload that cannot be decoded is null. `unreadable` has the reason, and `sealed` names the payloads that codecs
    refused.
    """
    # Each payload is read separately. A job whose data cannot be decoded must still be shown, because users often look
    # for exactly such a job.
    unreadable: dict[str, str] = {}
    sealed: list[str] = []

    def read(name: str, get: Callable[[], object]) -> object:
        try:
            return get()
        except SerializationError as error:
            unreadable[name] = str(error)
            if isinstance(error, CodecError):
                sealed.append(name)
            return None

    origin = job.dead_letter
    document: Document = {
        "id": job.id,
        "queue": job.queue,
        "name": job.name,
        "state": job.state,
        "data": read("data", lambda: named_call(job.data, tasks.get(job.name))),
        "options": read("options", lambda: {name: _option(value) for name, value in explicit(job.options).items()}),
        "key": job.key,
        "priority": job.priority,
        "lifo": job.lifo,
        "attempts_made": job.attempts_made,
        "stalled_count": job.stalled_count,
        "progress": read("progress", lambda: job.progress),
        "return_value": read("return_value", lambda: job.return_value),
        "failed_reason": job.failed_reason,
        "failure_cause": job.failure_cause,
        "stacktrace": job.stacktrace,
        "created_at": instant(job.created_at),
        "processed_at": instant(job.processed_at),
        "finished_at": instant(job.finished_at),
        "due_at": instant(job.due_at),
        "dead_letter_of": None if origin is None else _origin_document(origin),
    }
    document["unreadable"], document["sealed"] = unreadable, sealed
    return document


def _origin_document(origin: DeadLetter) -> Document:
    return {
        "queue": origin.queue,
        "id": origin.job_id,
        "cause": origin.cause,
        "reason": origin.reason,
        "attempts_made": origin.attempts_made,
        "failed_at": instant(origin.failed_at),
    }


def letter_row(document: Document) -> Document:
    """Return the document of a dead letter for a table.

    For a job that was moved and has not failed since, it shows why and when the job failed in its original queue."""
    # A row has one column for the cause and one for the reason. If the job has failed again in the dead-letter queue,
    # they show the new failure, because it is the one to look at. `glidemq job` shows both.
    origin = document["dead_letter_of"]
    if origin is None:
        return document
    row = document | {"id": f"{document['id']} (of {origin['queue']} {origin['id']})"}
    if document["failure_cause"] is not None:
        return row
    return row | {
        "failure_cause": origin["cause"],
        "failed_reason": origin["reason"],
        "attempts_made": origin["attempts_made"],
        "finished_at": origin["failed_at"],
    }


def _option(value: object) -> object:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else value


def worker_document(queue: str, worker: WorkerInfo) -> Document:
    """Return a worker of a queue as a document."""
    return {
        "queue": queue,
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "running": worker.running,
        "concurrency": worker.concurrency,
        "started_at": instant(worker.started_at),
        "last_seen": instant(worker.last_seen),
    }


def scheduler_document(queue: str, scheduler: JobScheduler[Any], setting: Setting) -> Document:
    """Return a job scheduler of a queue as a document, with who has paused or declared it."""
    schedule = scheduler.schedule
    return {
        "id": scheduler.id,
        "queue": queue,
        "name": scheduler.name,
        "cron": schedule.cron,
        "tz": schedule.tz,
        "every": schedule.every,
        "start": instant(schedule.start),
        "end": instant(schedule.end),
        "limit": schedule.limit,
        "missed": schedule.missed,
        "overlap": schedule.overlap,
        "immediately": schedule.immediately,
        "after_completion": schedule.after_completion,
        "jitter": schedule.jitter,
        "paused": scheduler.is_paused,
        "next_at": instant(scheduler.next_at),
        "last_at": instant(scheduler.last_at),
        "last_job_id": scheduler.last_job_id,
        "fired": scheduler.fired,
        "skipped": scheduler.skipped,
        "origin": setting.origin,
        "who": setting.who,
        "note": setting.note,
    }


def event_document(event: QueueEvent | EventGap) -> Document:
    """Return an event as a document. A gap has the kind "gap" and the number of missed events."""
    if isinstance(event, EventGap):
        return {"kind": "gap", "missed": event.missed, "position": event.position}
    return {
        "kind": event.kind,
        "job_id": event.job_id,
        "at": instant(event.at),
        "detail": event.detail,
        "position": event.position,
        "name": event.name,
        "key": event.key,
        "value": event.value,
        "size": event.size,
    }
