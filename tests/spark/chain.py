"""Two streaming queries over the events of a queue: into a lake of files, and as jobs into another queue.

`python -m tests.spark.chain live|rest|bulk <url> <folder>` is a driver program. "live" runs both queries until it is
killed, "rest" runs them to the end of the stored events, and "bulk" writes a frame into the second queue.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from glidemq_async import JobOptions, Queue
from glidemq_async.functions.calling import Record
from glidemq_async.spark import WriteReport, enqueue_frame, register
from glidemq_async.spark.connection import Connection, run_alone
from glidemq_async.stored.names import QueueKeys

SOURCE, SINK = "source", "sink"


def add(url: str, first: int, upto: int) -> None:
    """Add jobs j<first>, … to the source, which writes one event each, in entries of ten."""

    async def add_all() -> None:
        async with Queue[Any, Any](SOURCE, url) as queue:
            for start in range(first, upto, 10):
                some = range(start, min(start + 10, upto))
                await queue.add_bulk([("n", None, JobOptions(job_id=f"j{n}")) for n in some])

    asyncio.run(add_all())


def start(spark: SparkSession, url: str, folder: Path, to: str, *, rest: bool = False) -> StreamingQuery:
    """Start the query to the "lake" or to the slow "sink", in which a write is unfinished most of the time."""
    read = spark.readStream.format("glidemq").options(url=url, subscribe=SOURCE, startingOffsets="earliest")
    events = read.option("maxOffsetsPerTrigger", "40").load().where("event = 'added'")
    if to == "lake":
        writer = events.writeStream.format("parquet").option("path", str(folder / "lake"))
    else:
        jobs = events.selectExpr("concat('of-', job_id) AS id", "'n' AS name", "to_json(struct(seq)) AS data")
        writer = jobs.writeStream.format("glidemq").options(url=url, queue=SINK, batchSize="4", maxRowsPerSecond="40")
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{to}"))
    return (writer.trigger(availableNow=True) if rest else writer.trigger(processingTime="0 seconds")).start()


def finish(spark: SparkSession, url: str, folder: Path) -> None:
    """Run both queries to the end of the stored events."""
    for to in ("lake", "sink"):
        query = start(spark, url, folder, to, rest=True)
        assert query.awaitTermination(120)


def writes(url: str) -> list[Record]:
    """Return the stored writes of the sink, one per micro-batch."""

    async def ledgers(connection: Connection) -> list[Record]:
        functions = connection.functions(QueueKeys("glide", SINK))
        _, ids = await functions.writes.list_ids("", 100)
        return await functions.writes.get(ids)

    return run_alone(url, ledgers)


def inserted(url: str) -> int:
    """Return the number of jobs in the sink."""
    return sum(int(one[b"inserted"]) for one in writes(url))


def half_done(url: str, beyond: int) -> bool:
    """Return True if the sink has more than this many jobs, and some of an open micro-batch."""
    has_some = any(one[b"state"] == b"open" and int(one[b"inserted"]) > 0 for one in writes(url))
    return has_some and inserted(url) > beyond


def check(spark: SparkSession, url: str, folder: Path, events: int) -> None:
    """Assert that each event is in the lake once and is one job of the sink, and that the counts agree."""
    lake = spark.read.parquet(str(folder / "lake")).select("seq", "job_id").collect()
    assert sorted((row["seq"], row["job_id"]) for row in lake) == [(n, f"j{n}") for n in range(events)]

    async def ids() -> list[str]:
        async with Queue[Any, Any](SINK, url) as queue:
            assert await queue.check() == []
            return [job.id async for job in queue.iter_jobs("waiting")]

    assert sorted(asyncio.run(ids())) == sorted(f"of-j{n}" for n in range(events))
    found = writes(url)
    assert {one[b"state"] for one in found} == {b"committed"}
    assert inserted(url) == events
    assert sum(int(one[b"duplicate"]) for one in found) == 0


def write_all(spark: SparkSession, url: str, rows: int, rate: int | None) -> WriteReport:
    """Write `rows` rows to the sink, as the write "bulk"."""
    frame = spark.range(0, rows, 1, 2).selectExpr("concat('j', id) AS id", "'n' AS name", "'1' AS data")
    return enqueue_frame(frame, SINK, url=url, batch_size=10, max_rows_per_second=rate, write_id="bulk")


def main(mode: str, url: str, folder: Path) -> None:
    """Run the program that the arguments select."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.Builder()
        .master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-Xss4m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    if mode == "bulk":
        write_all(spark, url, 1000, 50)
    elif mode == "rest":
        finish(spark, url, folder)
    else:
        for to in ("lake", "sink"):
            start(spark, url, folder, to)
        spark.streams.awaitAnyTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
