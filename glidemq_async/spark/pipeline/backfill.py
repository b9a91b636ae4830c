"""Backfill: add a job for each of millions of rows to a queue whose depth stays limited.

The backlog stays in the lake, and the queue contains only the jobs that workers need next. Ids are deterministic, so an
interrupted backfill continues when it is run again. Rows whose jobs exist cost a few microseconds each.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by
from pyspark.sql.types import BinaryType, TimestampType

from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.errors import StorageUnavailable
from glidemq_async.spark.write.enqueue import Option, enqueue_frame
from glidemq_async.spark.write.jobs_frame import quoted
from glidemq_async.spark.write.report import WriteReport, write_report

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DEPTH: Final = 10_000
"""Default maximum number of waiting jobs."""
POLL_SECONDS: Final = 1.0

Progress = Callable[[WriteReport], None]


def job_rows(rows: DataFrame, *, name: str, id_columns: Sequence[str]) -> DataFrame:
    """Return a frame with the columns of a write: `data` is an object of all columns, `id` a digest of the id columns.

    Raises ValueError for missing id columns.
    """
    missing = [column for column in id_columns if column not in rows.columns]
    if missing or not id_columns:
        raise ValueError(f"id columns must be some of {', '.join(rows.columns)}, got {', '.join(missing) or 'none'}")
    identity = F.to_json(F.array(*(_identity(rows, column) for column in id_columns)))
    return rows.select(
        F.substring(F.sha2(identity, 256), 1, 32).alias("id"),
        F.lit(name).alias("name"),
        F.to_json(F.struct(*map(quoted, rows.columns)), {"ignoreNullFields": "false"}).alias("data"),
    )


def _identity(rows: DataFrame, column: str) -> Column:
    """Return a column as strings that differ for different values."""
    value, kind = F.col(quoted(column)), rows.schema[column].dataType
    # The text of an instant depends on the session's time zone, and is ambiguous in the hour when clocks are set back.
    if isinstance(kind, TimestampType):
        value = F.unix_micros(value)
    # As text, all invalid bytes would become the same character.
    if isinstance(kind, BinaryType):
        value = F.hex(value)
    return value.cast("string")


def backfill(
    frame: DataFrame,
    queue: str,
    *,
    url: str,
    campaign: str,
    version: int = 1,
    max_queue_depth: int = DEPTH,
    partitions: int | None = None,
    progress: Progress | None = None,
    **options: Option,
) -> WriteReport:
    """Write rows with `id`, `name` and `data` (see `job_rows`) while fewer than `max_queue_depth` jobs wait.

    The depth exceeds this limit by at most one batch per task. A committed version of a campaign does nothing, and an
    interrupted one continues. `partitions` is the number of tasks; a failed task is retried alone. `options` are the
    options of `enqueue_frame`. A task that waits for longer than `backpressure_timeout` fails. `progress` is called
    about once per second with the counts of the server.
    """
    # Repartitioning by id and not round-robin: a task that is retried must get the same rows again.
    if partitions is not None:
        frame = frame.repartition(partitions, "id")
    given: dict[str, Option] = {
        "txn_app_id": campaign,
        "txn_version": version,
        "max_queue_depth": max_queue_depth,
        "backpressure_timeout": "1h",
        **options,
    }
    prefix = str(options.get("prefix") or DEFAULT_PREFIX)
    read = partial(write_report, url, queue, txn_app_id=campaign, txn_version=version, prefix=prefix)
    with _reporting_progress(read, progress):
        return enqueue_frame(frame, queue, url=url, **given)


@contextmanager
def _reporting_progress(read: Callable[[], WriteReport], progress: Progress | None) -> Generator[None]:
    """Report the progress from a second thread during the block."""
    if progress is None:
        yield
        return
    done = threading.Event()

    def look() -> None:
        while not done.wait(POLL_SECONDS):
            try:
                found = read()
            except (LookupError, StorageUnavailable):  # not begun, or the server is unreachable: try again later
                continue
            progress(found)

    # A daemon, so that a read of the report that hangs cannot keep the driver alive. Spark's own call blocks this
    # thread until the write has ended.
    watcher = threading.Thread(target=look, name="glidemq-backfill", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
