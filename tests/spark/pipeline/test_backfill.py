"""Backfills wait for workers, and continue after an interruption."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import threading

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from glidemq_async import Job, Worker
from glidemq_async.spark.pipeline.backfill import backfill, job_rows
from glidemq_async.spark.write.report import WriteReport
from tests.support.stores import RunningStore

ROWS, DEPTH, BATCH, TASKS = 400, 100, 20, 2


def rows(spark: SparkSession) -> DataFrame:
    return job_rows(spark.range(ROWS).withColumnRenamed("id", "user"), name="welcome", id_columns=["user"])


def fill(frame: DataFrame, url: str, timeout: str = "1h") -> WriteReport:
    return backfill(
        frame,
        "work",
        url=url,
        campaign="may",
        max_queue_depth=DEPTH,
        partitions=TASKS,
        batch_size=BATCH,
        backpressure_timeout=timeout,
    )


def consume(url: str) -> list[int]:
    """Run a worker until it has run a job for each row, and return the users in order."""
    seen: list[int] = []

    async def work() -> None:
        done = asyncio.Event()

        async def handle(job: Job[dict[str, int], None]) -> None:
            seen.append(job.data["user"])
            if len(seen) == ROWS:
                done.set()

        async with Worker("work", handle, url, concurrency=5, handle_signals=False):
            await done.wait()

    asyncio.run(work())
    return seen


@pytest.mark.slow
def test_a_backfill_limits_the_depth_and_continues_after_an_interruption(
    spark: SparkSession, server: RunningStore
) -> None:
    url, frame = server.url, rows(spark)
    # Without a worker it stops at the limit and fails.
    with pytest.raises(PySparkException, match="backpressureTimeout"):
        fill(frame, url, timeout="500ms")
    seen: list[int] = []
    worker = threading.Thread(target=lambda: seen.extend(consume(url)))
    worker.start()
    report = fill(frame, url)
    worker.join()
    assert sorted(seen) == list(range(ROWS))
    assert (report.inserted, report.duplicate) == (ROWS, 0)

    events = spark.read.format("glidemq").options(kind="events", url=url, subscribe="work").load().sort("seq").collect()
    waiting = most = 0
    for event in events:
        waiting += {"added": 1, "active": -1}.get(event["event"], 0)
        most = max(most, waiting)
    assert DEPTH / 2 < most <= DEPTH + TASKS * BATCH
    # A finished backfill does nothing.
    assert fill(frame, url).inserted == ROWS
    assert len([event for event in events if event["event"] == "added"]) == ROWS


def test_ids_derive_from_the_id_columns(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", 1, "x"), ("a", 1, "y"), ("a", None, "z")], "user string, day int, text string")
    found = job_rows(frame, name="n", id_columns=["user", "day"]).collect()
    assert [row["data"] for row in found][2] == '{"user":"a","day":null,"text":"z"}'
    assert found[0]["id"] == found[1]["id"] != found[2]["id"]
    with pytest.raises(ValueError, match="id columns must be some of user, day, text, got nobody"):
        job_rows(frame, name="n", id_columns=["nobody"])


def test_ids_do_not_depend_on_the_time_zone_and_distinguish_instants(spark: SparkSession) -> None:
    # Two instants one hour apart with the same local time in Berlin.
    frame = spark.sql(
        "SELECT timestamp_seconds(1792891800 + 3600 * id) AS at, binary(chr(int(200 + id))) AS mark FROM range(2)"
    )

    def ids(zone: str, column: str) -> list[str]:
        spark.conf.set("spark.sql.session.timeZone", zone)
        return [row["id"] for row in job_rows(frame, name="n", id_columns=[column]).collect()]

    try:
        there, here = ids("Europe/Berlin", "at"), ids("UTC", "at")
        assert there == here
        assert len(set(here)) == 2
        assert len(set(ids("UTC", "mark"))) == 2
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_names_of_columns_may_contain_dots(spark: SparkSession) -> None:
    (row,) = job_rows(spark.createDataFrame([("a",)], ["user.id"]), name="n", id_columns=["user.id"]).collect()
    assert row["data"] == '{"user.id":"a"}'
