"""Writes of streams: each micro-batch is written once, even if it runs again."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from glidemq_async.spark import write_report
from tests.spark.writing.conftest import Written

pytestmark = pytest.mark.only_on("unix")


def lines(spark: SparkSession, folder: Path) -> DataFrame:
    """Return a stream of the lines of files. Each line is an id."""
    return spark.readStream.text(str(folder)).selectExpr("value as id", "'n' as name", "to_json(struct(value)) as data")


def run(frame: DataFrame, queue: Written, folder: Path, **options: str) -> str:
    """Write the available rows of a stream, and return the id of the query."""
    writer = frame.writeStream.format("glidemq").options(**queue.options, **options)
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    query.awaitTermination(60)
    return query.id


def test_micro_batches_are_written_once(spark: SparkSession, queue: Written, tmp_path: Path) -> None:
    files, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    files.mkdir()
    (files / "1").write_text("a\nb\n")
    query = run(lines(spark, files), queue, checkpoint)
    (files / "2").write_text("c\n")
    run(lines(spark, files), queue, checkpoint)
    first = write_report(queue.url, queue.name, f"{query}@0")
    assert (first.state, first.inserted, first.runs) == ("committed", 2, 1)
    assert write_report(queue.url, queue.name, f"{query}@1").inserted == 1
    assert sorted(queue.run()) == ["a", "b", "c"]
    # Remove the commit of the last batch, so that Spark writes it again.
    for entry in (checkpoint / "commits").glob("*1*"):
        entry.unlink()
    run(lines(spark, files), queue, checkpoint)
    assert queue.counts() == {"completed": 3}
    assert write_report(queue.url, queue.name, f"{query}@1").runs == 1


def test_values_of_a_stream_equal_values_of_a_batch(spark: SparkSession, queue: Written, tmp_path: Path) -> None:
    files = tmp_path / "in"
    files.mkdir()
    (files / "1").write_text("a\n")
    data = "map('m', struct(timestamp_seconds(0) AS at, X'00FF' AS b)) AS m, parse_json('[1]') AS v, 1.50 AS d"
    frame = lines(spark, files).selectExpr("id", "name", f"struct({data}) AS data")
    run(frame, queue, tmp_path / "checkpoint")
    at = datetime(1970, 1, 1, tzinfo=UTC)
    assert queue.run() == {"a": {"m": {"m": {"at": at, "b": b"\x00\xff"}}, "v": [1], "d": Decimal("1.50")}}


@pytest.mark.slow
def test_a_failed_micro_batch_is_fenced_and_completed_by_the_next_run(
    spark: SparkSession, queue: Written, tmp_path: Path
) -> None:
    files, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    files.mkdir()
    (files / "1").write_text("a\nb\n\n")
    with pytest.raises(StreamingQueryException, match="is null or empty"):
        run(lines(spark, files), queue, checkpoint, batchSize="1")
    query = run(lines(spark, files), queue, checkpoint, onInvalid="drop")
    report = write_report(queue.url, queue.name, f"{query}@0")
    assert (report.state, report.inserted, report.rejected, report.runs) == ("committed", 2, 1, 2)
    assert queue.counts() == {"waiting": 2}


def test_output_mode_complete_is_refused(spark: SparkSession, queue: Written, tmp_path: Path) -> None:
    files = tmp_path / "in"
    files.mkdir()
    (files / "1").write_text("a\n")
    frame = lines(spark, files).groupBy("id").count().selectExpr("id", "'n' as name")
    writer = frame.writeStream.format("glidemq").options(**queue.options).outputMode("complete")
    with pytest.raises(StreamingQueryException, match="complete"):
        writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination(60)
