"""A streaming query that tests run, break and run again on one checkpoint, and the rows of its sink."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

# Only a safeguard: on a loaded machine the failure of a task and its attempts take minutes.
PATIENCE = 300


class BrokenError(Exception):
    """The requested fault."""


@dataclass
class Stream:
    """Queries on one checkpoint, with a sink that stores each batch by its number."""

    spark: SparkSession
    folder: Path
    options: dict[str, str]
    progress: list[int] = field(default_factory=list)
    """The number of rows of each batch of the last run."""
    fault: str = ""

    def _write(self, frame: DataFrame, batch: int) -> None:
        if self.fault == "in read":
            frame = frame.selectExpr("*", "if(seq % 7 = 3, raise_error('broken'), 0) as broken")
        frame.write.mode("overwrite").parquet(str(self.folder / "out" / f"batch={batch}"))
        if self.fault == "after sink":
            raise BrokenError

    def start(self, *, all_available: bool = False, **options: object) -> StreamingQuery:
        """Start a query."""
        given = self.options | {name: str(value) for name, value in options.items()}
        frame = self.spark.readStream.format("glidemq").options(**given).load()
        writer = frame.writeStream.foreachBatch(self._write).option("checkpointLocation", str(self.folder / "check"))
        trigger = writer.trigger(availableNow=True) if all_available else writer.trigger(processingTime="0 seconds")
        return trigger.start()

    def run(self, **options: object) -> None:
        """Read the stored events, and end."""
        query = self.start(all_available=True, **options)
        try:
            query.awaitTermination()
        finally:
            query.stop()
        self.progress = [int(one["numInputRows"]) for one in query.recentProgress]

    @contextmanager
    def live(self, fault: str = "") -> Generator[StreamingQuery]:
        """Run a query during the block. It has read all events when the block begins, and may break in the block."""
        query = self.start()
        try:
            # A query that starts at "latest" sometimes has an empty first batch, which must not break.
            until(lambda: query.status["message"] == "Waiting for data to arrive")
            self.fault = fault
            yield query
        finally:
            query.stop()
            self.fault = ""

    def break_down(self, query: StreamingQuery) -> None:
        """Wait until the requested fault ends the query, or stop the query as if the fault had come."""
        fault = self.fault
        if fault in ("in read", "after sink"):
            try:
                assert query.awaitTermination(PATIENCE), "the query did not break"
            except PySparkException:
                return
            raise AssertionError("the query ended without its fault")
        until(lambda: bool(self.commits()))
        query.stop()
        if fault == "before plan":
            last = self.forget_last_commit()
            shutil.rmtree(self.folder / "out" / f"batch={last}")

    def rows(self) -> list[Row]:
        """Return the rows of the sink, by event number."""
        return self.spark.read.parquet(str(self.folder / "out")).orderBy("queue", "incarnation", "seq").collect()

    def numbers(self) -> list[int]:
        """Return the event numbers of the sink."""
        return [row.seq for row in self.rows()]

    def offsets(self) -> list[dict[str, object]]:
        """Return the offsets in the checkpoint, by batch."""
        files = sorted((self.folder / "check" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return [json.loads(path.read_text().splitlines()[-1]) for path in files]

    def commits(self) -> list[int]:
        """Return the committed batches."""
        return sorted(int(path.name) for path in (self.folder / "check" / "commits").glob("[0-9]*"))

    def forget_last_commit(self) -> int:
        """Remove the commit of the last batch, and return its number."""
        last = self.folder / "check" / "commits" / str(self.commits()[-1])
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
        return int(last.name)


def until(condition: object) -> None:
    """Poll until a condition is true that Spark does not announce."""
    assert callable(condition)
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
