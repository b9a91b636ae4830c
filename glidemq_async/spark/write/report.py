"""`write_report`: the result of a write, as the server counted it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.spark.connection import Connection, run_alone
from glidemq_async.stored.names import QueueKeys

if TYPE_CHECKING:
    from glidemq_async.functions.callers import Functions
    from glidemq_async.functions.calling import Record

__all__ = ["WriteReport", "report_of_run", "write_report"]


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The counts of one write, over all its runs and retried tasks.

    `inserted`: jobs that it added. `duplicate`: rows whose id another job had. `rejected`: invalid rows. Each row
    counts once in these three. `replayed`: number of repetitions of rows, by retried tasks, by further runs, or in the
    frame. `partitions`: committed tasks. `seconds`: time from the opening of the write to its end.
    """

    write_id: str
    state: str
    inserted: int
    replayed: int
    duplicate: int
    rejected: int
    partitions: int
    runs: int
    seconds: float | None


def write_report(
    url: str,
    queue: str,
    write_id: str | None = None,
    *,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    prefix: str = DEFAULT_PREFIX,
) -> WriteReport:
    """Return the report of a write, by its id or by its transaction.

    `txn_version` is by default the last committed version of the application `txn_app_id`.

    Raises ValueError unless exactly one of `write_id` and `txn_app_id` is given, LookupError for an unknown write, and
    StorageUnavailable. The server keeps the counts for seven days, or for `dedupTtl` if that is longer.
    """
    if (write_id is None) == (txn_app_id is None):
        raise ValueError("pass either write_id or txn_app_id")
    keys = QueueKeys(prefix, queue)
    return run_alone(url, lambda connection: _report(connection, keys, write_id, txn_app_id, txn_version))


def report_of_run(url: str, queue: str, app: str, version: int, *, prefix: str) -> WriteReport:
    """Return the report of a transaction that has just run, with zeros if it had nothing to do.

    The server stores the last committed version of an application for 90 days, which is longer than it stores counts.
    It may know nothing of a version below that. Raises the same errors as `write_report`.
    """
    keys = QueueKeys(prefix, queue)
    return run_alone(url, lambda connection: _report_of_run(connection, keys, app, version))


async def _report_of_run(connection: Connection, keys: QueueKeys, app: str, version: int) -> WriteReport:
    try:
        return await _report(connection, keys, None, app, version)
    except LookupError:
        # No write has this id, or it has expired. If the planner found the version committed, the run wrote nothing.
        # Any other missing write is an error.
        last = await connection.functions(keys).writes.get_transaction(app)
        if last is None or last[0] < version:
            raise
        return report_of(f"{app}@{version}", {b"state": b"committed"})


async def _report(
    connection: Connection, keys: QueueKeys, write_id: str | None, app: str | None, version: int | None
) -> WriteReport:
    functions = connection.functions(keys)
    if write_id is None:
        write_id = await _last_committed(functions, keys, app) if version is None else f"{app}@{version}"
    (found,) = await functions.writes.get([write_id])
    if not found:
        raise LookupError(
            f"queue {keys.queue!r} has no write {write_id!r}: the queue or the prefix is wrong, or its counts have "
            "expired"
        )
    return report_of(write_id, found)


async def _last_committed(functions: Functions, keys: QueueKeys, app: str | None) -> str:
    last = await functions.writes.get_transaction(app or "")
    if last is None:
        raise LookupError(f"queue {keys.queue!r} has no committed write of txn_app_id={app!r}")
    return last[1]


def report_of(write_id: str, found: Record) -> WriteReport:
    """Return the report of a stored write."""

    def number(name: str) -> int:
        return int(found.get(name.encode(), b"0"))

    ended = number("ended")
    return WriteReport(
        write_id=write_id,
        state=found[b"state"].decode(),
        inserted=number("inserted"),
        replayed=number("replayed"),
        duplicate=number("duplicate"),
        rejected=number("rejected"),
        partitions=number("partitions"),
        runs=number("runs"),
        seconds=(ended - number("began")) / 1000 if ended else None,
    )
