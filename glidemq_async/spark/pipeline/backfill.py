"""Backfill: millions of rows into a queue that never holds more than so many of them.

The lake is the backlog; the queue holds what the workers are about to need. Ids are deterministic, so that a backfill
that was cut off is run again and goes on: rows that are there already cost a few microseconds each.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
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
"""How many jobs may wait unless something else is said."""
LOOK_SECONDS: Final = 1.0

Progress = Callable[[WriteReport], None]


def job_rows(rows: DataFrame, *, name: str, id_columns: Sequence[str]) -> DataFrame:
    """Return the rows as a writer takes them: `data` is an object of all columns, `id` a digest of the id columns.

    Raises ValueError for id columns that the rows do not have.
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
    """A value as the text that tells it from others."""
    value, kind = F.col(quoted(column)), rows.schema[column].dataType
    # Their texts depend on the session's time zone, and two instants share one when clocks are put back.
    if isinstance(kind, TimestampType):
        value = F.unix_micros(value)
    # Bytes that are no UTF-8 would all be the same.
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
    """Write rows with `id`, `name` and `data` (see `job_rows`) as workers take them: the queue stays below the mark.

    The depth exceeds `max_queue_depth` by no more than one batch per task. A campaign of a version that has been
    committed does nothing any more; one that was cut off goes on. `partitions` splits the rows into as many tasks: each
    is repeated by itself when it fails. `options` are those of `enqueue_frame`; what waits for longer than
    `backpressure_timeout` fails. `progress` is told about once a second what the server has counted.
    """
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
    with _watched(url, queue, campaign, version, prefix, progress):
        return enqueue_frame(frame, queue, url=url, **given)


@contextmanager
def _watched(
    url: str, queue: str, campaign: str, version: int, prefix: str, progress: Progress | None
) -> Generator[None]:
    """Tell the progress from a thread of its own meanwhile."""
    if progress is None:
        yield
        return
    done = threading.Event()

    def look() -> None:
        while not done.wait(LOOK_SECONDS):
            try:
                found = write_report(url, queue, txn_app_id=campaign, txn_version=version, prefix=prefix)
            except (LookupError, StorageUnavailable):  # it has not begun, or the server is away: the next time will do
                continue
            progress(found)

    watcher = threading.Thread(target=look, name="glidemq-backfill", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
