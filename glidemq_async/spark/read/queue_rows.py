"""Rows of the small tables of a queue: kind=queues, schedulers, workers, writes, losses and readers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final, cast

import msgpack

from glidemq_async.client.queue_client import QueueClient
from glidemq_async.durations import from_ms
from glidemq_async.errors import SerializationError
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Record
from glidemq_async.functions.scheduler_list import StoredScheduler
from glidemq_async.queues.inspection import SILENT_SECONDS
from glidemq_async.schedules.schedule import interval_ms
from glidemq_async.schedules.stored_schedule import read_schedule
from glidemq_async.spark.read.job_rows import Row
from glidemq_async.stored.record import created_ms, place_of, whole

HOUR_MS: Final = 3_600_000
WRITES_PER_CALL: Final = 100
SCHEDULERS_PER_CALL: Final = 20


async def queue_rows(client: QueueClient) -> list[Row]:
    """Return the row of one queue, or no row if the queue does not exist."""
    functions = client.functions
    bounds, _ = await functions.history.locate()
    if not bounds.incarnation and not bounds.total:
        return []
    counts = await functions.reading.count_jobs()
    row: Row = {state.replace("-", "_"): number for state, number in counts.items()}
    now = time.time()
    runs = jobs = 0
    for state in ("completed", "failed"):
        minutes = await functions.metrics.get(state, round(now * 1000) - HOUR_MS, None)
        row[f"{state}_last_hour"] = sum(minute.jobs for minute in minutes)
        jobs += row[f"{state}_last_hour"]
        runs += sum(minute.run_ms for minute in minutes)
    return [
        row
        | {
            "queue": client.queue,
            "paused": await functions.reading.is_paused(),
            "oldest_waiting_ms": await _oldest_waiting(functions, now),
            "mean_run_ms": runs / jobs if jobs else None,
            "workers": len(await functions.worker_list.list(round(SILENT_SECONDS * 1000))),
            "events": bounds.total,
            "incarnation": bounds.incarnation,
            "observed_at": datetime.fromtimestamp(now, UTC),
        }
    ]


def _created(record: Record) -> int:
    return created_ms(record.get(b"added"), place_of(record).entry, record.get(b"route"))


async def _oldest_waiting(functions: Functions, now: float) -> int | None:
    """Return the age of the first waiting job in milliseconds, by this machine's clock, or None."""
    created: list[int] = []
    for state in ("waiting", "prioritized", "key-waiting"):
        _, ids = await functions.reading.list_jobs(state, "", 1)
        found = [record for record in await functions.reading.get_heads(ids) if b"place" in record]
        created += [_created(record) for record in found]
    return max(0, round(now * 1000) - min(created)) if created else None


async def scheduler_rows(client: QueueClient) -> list[Row]:
    """Return a row for each job scheduler. If this version cannot read its schedule, those columns are null."""
    ids: set[str] = set()
    cursor = "0"
    while cursor:
        cursor, step = await client.functions.scheduler_list.list_ids(cursor)
        ids.update(step)
    names, rows = sorted(ids), list[Row]()
    for start in range(0, len(names), SCHEDULERS_PER_CALL):
        _, found = await client.functions.scheduler_list.get(names[start : start + SCHEDULERS_PER_CALL])
        rows += [_scheduler(client, one) for one in found if one is not None]
    return rows


def _scheduler(client: QueueClient, stored: StoredScheduler) -> Row:
    record = stored.record
    try:
        schedule, _ = read_schedule(record.get(b"spec", b""))
    except SerializationError:
        schedule = None
    last = record.get(b"last_slot")
    return {
        "queue": client.queue,
        "id": stored.id,
        "name": record.get(b"name", b"").decode(errors="replace"),
        "cron": schedule.cron if schedule else None,
        "tz": schedule.tz if schedule else None,
        "every_ms": interval_ms(schedule) if schedule else None,
        "next_at": None if stored.next is None else from_ms(stored.next),
        "last_at": from_ms(int(last)) if last else None,
        "last_job_id": record.get(b"last_job", b"").decode() or None,
        "fired": whole(record, b"fired"),
        "skipped": whole(record, b"skipped"),
        "observed_at": datetime.now(UTC),
    }


async def worker_rows(client: QueueClient) -> list[Row]:
    """Return a row for each worker that renewed its registration within a minute."""
    rows: list[Row] = []
    for one in await client.functions.worker_list.list(round(SILENT_SECONDS * 1000)):
        info = cast("dict[str, Any]", msgpack.unpackb(one.info) or {} if one.info else {})
        rows.append({
            "queue": client.queue, "name": one.name, "host": info.get("host"), "pid": info.get("pid"),
            "concurrency": info.get("concurrency"), "running": one.running,
            "started_at": from_ms(info.get("started") or one.last_seen), "last_seen": from_ms(one.last_seen),
            "observed_at": datetime.now(UTC),
        })  # fmt: skip
    return rows


async def write_rows(client: QueueClient) -> list[Row]:
    """Return a row for each write that the server stores, the newest first."""
    writes = client.functions.writes
    rows: list[Row] = []
    cursor = ""
    while True:
        cursor, ids = await writes.list_ids(cursor, WRITES_PER_CALL)
        records = await writes.get(ids) if ids else []
        rows += [_write(client, name, record) for name, record in zip(ids, records, strict=True) if record]
        if not cursor:
            return rows


def _write(client: QueueClient, write_id: str, record: Record) -> Row:
    def instant(name: bytes) -> datetime | None:
        return from_ms(int(record[name])) if record.get(name) else None

    row: Row = {name: whole(record, name.encode()) for name in ("inserted", "replayed", "duplicate", "rejected")}
    return row | {
        "queue": client.queue,
        "write_id": write_id,
        "state": record.get(b"state", b"").decode(),
        "began": instant(b"began"),
        "ended": instant(b"ended"),
        "partitions": whole(record, b"partitions"),
        "app": record.get(b"app", b"").decode() or None,
        "version": int(record[b"version"]) if record.get(b"app") and record.get(b"version") else None,
        "label": record.get(b"label", b"").decode() or None,
        "observed_at": datetime.now(UTC),
    }


async def loss_rows(client: QueueClient) -> list[Row]:
    """Return a row for each loss that readers of the queue's events have recorded."""
    return [
        {
            "queue": client.queue, "reader": one.reader or None, "why": one.why, "incarnation": one.incarnation,
            "first": one.first, "upto": one.stop, "events": None if one.stop is None else one.stop - one.first,
            "noted_at": from_ms(one.noted_ms),
        }
        for one in await client.functions.history.list_losses()
    ]  # fmt: skip


async def reader_rows(client: QueueClient) -> list[Row]:
    """Return a row for each reader that stores its position in the queue."""
    bounds, _ = await client.functions.history.locate()
    return [
        {
            "queue": client.queue, "reader": one.name, "incarnation": one.incarnation, "n": one.n,
            "lag": bounds.total - one.n, "noted_at": from_ms(one.noted_ms), "observed_at": datetime.now(UTC),
        }
        for one in await client.functions.history.list_readers()
    ]  # fmt: skip


OF_QUEUE: Final[dict[str, Callable[[QueueClient], Awaitable[list[Row]]]]] = {
    "queues": queue_rows,
    "schedulers": scheduler_rows,
    "workers": worker_rows,
    "writes": write_rows,
    "losses": loss_rows,
    "readers": reader_rows,
}
