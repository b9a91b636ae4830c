"""Bronze: the events as they come, appended by a stream, each exactly once.

Spark's file sink notes the files of each batch in a log of its own and skips a batch that it has already, and the
reader gives the same rows for the same batch. So a batch that is run again, because the driver died before the
checkpoint knew of it, changes nothing. Files of a batch that was cut off are removed when the stream starts again.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

from glidemq_async.spark.pipeline.columns import day
from glidemq_async.spark.pipeline.lake import Lake, uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class Audit:
    """What the numbers of the events of one queue and incarnation say; `distinct` of them are in `rows` rows."""

    queue: str
    incarnation: str
    first: int
    last: int
    rows: int
    distinct: int

    @property
    def gap(self) -> int:
        """Events that are missing between the first and the last."""
        return self.last - self.first + 1 - self.distinct

    @property
    def doubled(self) -> int:
        """Rows too many."""
        return self.rows - self.distinct

    @property
    def clean(self) -> bool:
        """Whether each event between the first and the last is there once."""
        return self.last - self.first + 1 == self.rows == self.distinct


def append_events(events: DataFrame, lake: Lake, *, every: float | None = None) -> StreamingQuery:
    """Start the stream that appends events to bronze; a lake takes one such stream, of as many queues as one likes.

    events: a stream of `format("glidemq")`. every: seconds between batches; without it the stream ends with what there
    is now.
    """
    remove_incomplete_files(lake)
    writer = (
        events.withColumn("dt", day("ts"))
        # One file per day and batch, not one per partition of the source.
        .repartition("dt")
        .writeStream.format("parquet")
        .outputMode("append")
        .partitionBy("dt")
        .option("path", uri(lake.bronze))
        .option("checkpointLocation", uri(lake.checkpoint("bronze")))
        .queryName("glidemq-bronze")
    )
    return started(writer, every)


def remove_incomplete_files(lake: Lake) -> list[Path]:
    """Remove the files of batches that were cut off, and return them. Not while a stream appends to the lake.

    The sink's log does not name such files, so Spark passes them by. Other readers of the folder would fail on one that
    is not complete, and read the rows of the others twice.
    """
    log = lake.bronze / "_spark_metadata"
    if not log.is_dir():
        return []  # nothing says which files belong to the lake
    kept = {name for entry in log.iterdir() if entry.name[0].isdigit() for name in _named(entry)}
    gone = [path for path in lake.bronze.glob("dt=*/*.parquet") if path.name not in kept]
    for path in gone:
        path.unlink(missing_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return gone


def _named(entry: Path) -> Iterator[str]:
    """The names of the files in an entry of the sink's log: a line with its version, then a file in each line."""
    for line in entry.read_text(encoding="utf-8").splitlines()[1:]:
        yield unquote(json.loads(line)["path"]).rpartition("/")[2]


def started(writer: DataStreamWriter, every: float | None) -> StreamingQuery:
    """Start a stream with a batch each so many seconds, or, with None, of what there is now."""
    trigger = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=f"{every} seconds")
    return trigger.start()


def audit(events: DataFrame) -> list[Audit]:
    """Return an audit of each queue and incarnation, in their order."""
    found = events.groupBy("queue", "incarnation").agg(
        F.min("seq").alias("first"),
        F.max("seq").alias("last"),
        F.count("seq").alias("rows"),
        F.count_distinct("seq").alias("distinct"),
    )
    return [Audit(**row.asDict()) for row in found.sort("queue", "incarnation").collect()]
