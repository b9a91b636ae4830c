"""What came of a write, as the server counted it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.spark.connection import Connection, run_alone
from glidemq_async.stored.names import QueueKeys

if TYPE_CHECKING:
    from glidemq_async.functions.calling import Record

__all__ = ["WriteReport", "report_of_run", "write_report"]


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The numbers of one write, all its runs and retried tasks together.

    `inserted`: jobs that it added. `duplicate`: rows whose id another job had. `rejected`: rows that were no valid
    jobs. `replayed`: how often a row came again, by tasks and runs that were repeated, or twice in the frame; those
    rows count above once. `partitions`: tasks that were committed. `seconds`: from opening to its end, of its last run.
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
    """Return what came of a write: by its id, or by its transaction (without a version: the last one committed).

    Raises ValueError for neither or both, LookupError when nothing is known of it (kept for seven days or `dedupTtl`,
    whichever is longer), StorageUnavailable.
    """
    if (write_id is None) == (txn_app_id is None):
        raise ValueError("give write_id or txn_app_id: the one of them that names the write")
    keys = QueueKeys(prefix, queue)
    return run_alone(url, lambda connection: _report(connection, keys, write_id, txn_app_id, txn_version))


def report_of_run(url: str, queue: str, app: str, version: int, *, prefix: str) -> WriteReport:
    """Return what came of a transaction that was just run: of one that had nothing to do any more, no numbers.

    The server knows longer that a version was committed (90 days) than what came of it, and of a version that a later
    one has passed it may know nothing at all. Raises as `write_report` does.
    """
    keys = QueueKeys(prefix, queue)
    return run_alone(url, lambda connection: _report_of_run(connection, keys, app, version))


async def _report_of_run(connection: Connection, keys: QueueKeys, app: str, version: int) -> WriteReport:
    try:
        return await _report(connection, keys, None, app, version)
    except LookupError:
        last = await connection.functions(keys).get_transaction(app)
        if last is None or last[0] < version:
            raise
        return report_of(f"{app}@{version}", {b"state": b"committed"})


async def _report(
    connection: Connection, keys: QueueKeys, write_id: str | None, app: str | None, version: int | None
) -> WriteReport:
    functions = connection.functions(keys)
    if write_id is None and version is not None:
        write_id = f"{app}@{version}"
    elif write_id is None:
        last = await functions.get_transaction(app or "")
        if last is None:
            raise LookupError(f"queue {keys.queue!r} knows no committed write of txn_app_id={app!r}")
        write_id = last[1]
    (found,) = await functions.get_writes([write_id])
    if not found:
        raise LookupError(f"queue {keys.queue!r} knows no write {write_id!r}: another queue or prefix, or too long ago")
    return report_of(write_id, found)


def report_of(write_id: str, found: Record) -> WriteReport:
    """Return the report that a stored write makes."""

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
