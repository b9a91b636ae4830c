"""Rows of the tables of jobs: kind=jobs, dlq and results. This runs in Spark tasks."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final, Literal, TypeAlias

from glidemq_async.client.queue_client import QueueClient
from glidemq_async.durations import from_ms
from glidemq_async.errors import SerializationError
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Record
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import job_of_record
from glidemq_async.spark.read.options import ReadOptions
from glidemq_async.stored.record import FINAL, place_of, whole

# Any: the type of a value depends on its column.
Row: TypeAlias = dict[str, Any]

PAGE_SIZE: Final = 500
FULL_RECORDS_PER_CALL: Final = 50
"""Number of records per call when they contain payloads, which may be large."""


async def job_rows(
    client: QueueClient, options: ReadOptions, state: str, first: int, stop: int | None
) -> AsyncIterator[list[Row]]:
    """Iterate over pages of the jobs in a state, from rank `first` to `stop - 1` if the state has ranks."""
    cursor, left = str(first) if first else "", stop - first if stop is not None else None
    while left is None or left > 0:
        count = PAGE_SIZE if left is None else min(PAGE_SIZE, left)
        cursor, ids = await client.functions.reading.list_jobs(state, cursor, count)
        # The record is read after the id, so the job may have another state by now. It is skipped here, and appears in
        # the task of its new state if that one reads later.
        yield [row for row in await rows_of(client, options, ids) if row["state"] == state]
        left = None if left is None else left - count
        if not cursor:
            return


async def dead_letter_rows(client: QueueClient, options: ReadOptions, state: str) -> AsyncIterator[list[Row]]:
    """Iterate over pages of the dead letters that failed in this queue, or were moved to it."""
    kind: Literal["failed", "moved"] = "failed" if state == "failed" else "moved"
    cursor = ""
    while True:
        cursor, ids = await client.functions.replaying.list_ids(kind, cursor, PAGE_SIZE, "")
        yield await rows_of(client, options, [each for each in ids if not options.ids or each in options.ids])
        if not cursor:
            return


async def rows_of(client: QueueClient, options: ReadOptions, ids: Sequence[str]) -> list[Row]:
    """Return the rows of these jobs, except for jobs that were removed or do not match the options."""
    found: list[Row] = []
    step = FULL_RECORDS_PER_CALL if options.include_data else PAGE_SIZE
    for start in range(0, len(ids), step):
        chunk = ids[start : start + step]
        # Without payloads the server returns only the small fields, so more records fit into a call of bounded
        # duration.
        records = await _records(client.functions, chunk, options.include_data)
        now = datetime.now(UTC)
        for job_id, record in zip(chunk, records, strict=True):
            if b"place" in record and _is_wanted(record, options):
                row = _row(client, job_id, record, options.include_data, now)
                if _is_new_enough(row, options):
                    found.append(row)
    return found


async def _records(functions: Functions, ids: Sequence[str], with_data: bool) -> list[Record]:
    return await (functions.reading.get_records(ids) if with_data else functions.reading.get_heads(ids))


def _is_wanted(record: Record, options: ReadOptions) -> bool:
    state = place_of(record).state
    if options.kind == "results" and state not in FINAL:
        return False
    if options.states and state not in options.states:
        return False
    return not options.names or record.get(b"name", b"").decode(errors="replace") in options.names


def _is_new_enough(row: Row, options: ReadOptions) -> bool:
    after, created = options.created_after_ms, row["created_at"]
    # Compare datetimes: a float timestamp sometimes loses the last millisecond.
    return after is None or (created is not None and created >= from_ms(after))


def _row(client: QueueClient, job_id: str, record: Record, with_data: bool, now: datetime) -> Row:
    job = job_of_record(client, job_id, record)
    origin = job.dead_letter
    row: Row = {
        "queue": client.queue, "id": job.id, "name": job.name, "state": job.state, "key": job.key,
        "priority": job.priority, "lifo": job.lifo, "attempts_made": job.attempts_made,
        "stalled_count": job.stalled_count, "fence": job.fence, "created_at": job.created_at,
        "processed_at": job.processed_at, "finished_at": job.finished_at, "failed_reason": job.failed_reason,
        "failure_cause": job.failure_cause, "data_size": job.data_size if with_data else whole(record, b"size"),
        "progress": None, "data": None, "payload": record.get(b"data") if with_data else None, "result": None,
        "stacktrace": None, "unreadable": None, "observed_at": now,
        "origin_queue": origin.queue if origin else None, "origin_id": origin.job_id if origin else None,
        "origin_attempts": origin.attempts_made if origin else None,
        "origin_failed_at": origin.failed_at if origin else None,
    }  # fmt: skip
    if origin is not None:
        row |= {"failed_reason": job.failed_reason or origin.reason, "failure_cause": job.failure_cause or origin.cause}
    if with_data:
        _read_payloads(job, row)
    return row


def _read_payloads(job: Job[Any, Any], row: Row) -> None:
    """Add data, progress and result as JSON. A value that cannot be read goes to the column `unreadable`."""
    row["stacktrace"] = job.stacktrace
    for name, attribute in (("data", "data"), ("progress", "progress"), ("result", "return_value")):
        try:
            value: object = getattr(job, attribute)
            none = (name == "progress" and value is None) or (name == "result" and job.state != "completed")
            row[name] = None if none else to_json(value)
        except (SerializationError, TypeError, ValueError, RecursionError) as error:
            row["unreadable"] = f"{name}: {error}"


def to_json(value: object) -> str:
    """Return a value as JSON. Bytes become base64, times ISO strings, and other unknown values their `str`."""
    return json.dumps(value, default=_json_default, ensure_ascii=False)


def _json_default(value: object) -> object:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return [*value]  # pyright: ignore[reportUnknownVariableType]
    return str(value)
