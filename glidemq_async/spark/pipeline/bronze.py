"""Bronze: the raw events. A stream appends each event exactly once.

The reader returns the same rows for the same batch, and Spark's file sink records the files of each batch in a log and
skips a batch that is in the log. So a batch that runs again, because the driver died before it updated the checkpoint,
changes nothing. Files of an interrupted batch are removed when the stream starts again.
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
    """The result of checking the event numbers of one queue and incarnation: `rows` rows with `distinct` numbers."""

    queue: str
    incarnation: str
    first: int
    last: int
    rows: int
    distinct: int

    @property
    def gap(self) -> int:
        """Number of missing events between the first and the last."""
        return self.last - self.first + 1 - self.distinct

    @property
    def doubled(self) -> int:
        """Number of duplicate rows."""
        return self.rows - self.distinct

    @property
    def clean(self) -> bool:
        """True if each event between the first and the last exists once."""
        return self.last - self.first + 1 == self.rows == self.distinct


def append_events(events: DataFrame, lake: Lake, *, every: float | None = None) -> StreamingQuery:
    """Start the stream that appends events to bronze. A lake has one such stream, which may read several queues.

    events: a stream of `format("glidemq")`. every: seconds between batches; None reads the stored events and ends.
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
    return start_stream(writer, every)


def remove_incomplete_files(lake: Lake) -> list[Path]:
    """Remove the files of interrupted batches and return them. Do not call this while a stream appends to the lake.

    The log of the sink does not contain such files, so Spark ignores them. Other readers of the folder would fail on
    incomplete files, and read the rows of complete ones twice.
    """
    log = lake.bronze / "_spark_metadata"
    if not log.is_dir():
        return []  # without a log nothing shows which files belong to the lake
    # The log is the only list of complete files. Entries are named by batch; compacted entries contain all earlier
    # files.
    kept = {name for entry in log.iterdir() if entry.name[0].isdigit() for name in _named(entry)}
    gone = [path for path in lake.bronze.glob("dt=*/*.parquet") if path.name not in kept]
    for path in gone:
        path.unlink(missing_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return gone


def _named(entry: Path) -> Iterator[str]:
    """Yield the names of the files in an entry of the sink's log: a line with the version, then one line per file."""
    for line in entry.read_text(encoding="utf-8").splitlines()[1:]:
        yield unquote(json.loads(line)["path"]).rpartition("/")[2]


def start_stream(writer: DataStreamWriter, every: float | None) -> StreamingQuery:
    """Start a stream with a batch every `every` seconds. None reads the stored events and ends."""
    trigger = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=f"{every} seconds")
    return trigger.start()


def audit(events: DataFrame) -> list[Audit]:
    """Return the audit of each queue and incarnation, sorted by both."""
    # The server numbers the events of an incarnation without gaps. So three counts prove that the lake has each event
    # once: the range of the numbers, the rows, and the distinct numbers.
    found = events.groupBy("queue", "incarnation").agg(
        F.min("seq").alias("first"),
        F.max("seq").alias("last"),
        F.count("seq").alias("rows"),
        F.count_distinct("seq").alias("distinct"),
    )
    return [Audit(**row.asDict()) for row in found.sort("queue", "incarnation").collect()]
