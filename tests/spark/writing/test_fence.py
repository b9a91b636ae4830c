"""Tasks that outlive their write add no further jobs.

The rows are small and reach a task in one batch, and the rate is low. So a task that Spark has cancelled continues with
its batch until Spark kills its process.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportPrivateUsage=false

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from glidemq_async.spark import WriteReport, enqueue_frame, use_session
from tests.spark.waiting import arrived, until
from tests.spark.writing.conftest import Written

pytestmark = [pytest.mark.only_on("unix"), pytest.mark.usefixtures("_long_lived_tasks", "_every_call_is_logged")]

KILL_TIMEOUT = "spark.python.task.killTimeout"
EVENTS = "glide:{orders}:events"
ROWS = 4000
SCHEMA = "id string, name string, data string"


@pytest.fixture
def _long_lived_tasks(spark: SparkSession) -> Iterator[None]:
    """Keep the processes of cancelled tasks alive until after the abort."""
    conf = spark.sparkContext._conf  # the very one that runs of tasks read; getConf() is a copy
    before = conf.get(KILL_TIMEOUT, "2s")
    conf.set(KILL_TIMEOUT, "15s")
    yield
    conf.set(KILL_TIMEOUT, str(before))


def rows(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    """Return rows j0, j1, …"""
    return spark.range(0, count, 1, partitions).selectExpr("concat('j', id) as id", "'n' as name", "'1' as data")


def write(frame: DataFrame, queue: Written, rate: int | None = 200) -> WriteReport:
    """Write in calls of ten rows, at most `rate` rows per second."""
    return enqueue_frame(frame, queue.name, url=queue.url, batch_size=10, max_rows_per_second=rate, write_id="w")


@pytest.fixture
def _every_call_is_logged(queue: Written) -> Iterator[None]:
    """Make the server record every call in its slow log, in order."""
    queue.ask("CONFIG", "SET", "slowlog-max-len", 10_000)
    queue.ask("CONFIG", "SET", "slowlog-log-slower-than", 0)
    queue.ask("SLOWLOG", "RESET")
    yield
    queue.ask("CONFIG", "SET", "slowlog-log-slower-than", 10_000)


def calls(queue: Written) -> list[str]:
    """Return the functions that were called for the write, the oldest first, including refused calls."""
    commands: list[list[bytes]] = [entry[3] for entry in queue.ask("SLOWLOG", "GET", -1)]
    ours = [command for command in reversed(commands) if command[0] == b"FCALL" and b"w" in command]
    return [re.sub(r".*_", "", command[1].decode()) for command in ours]


def nothing_came_after(queue: Written) -> None:
    """Assert that a task continues after the abort of its write, and that its calls are refused."""
    assert queue.report("w").state == "aborted"

    def went_on() -> bool:
        names = calls(queue)
        return "addToWrite" in names[names.index("endWrite") :]

    until(went_on, "a task went on")
    reported = re.findall(rb"aborted (\d+) w", repr(queue.ask("XREVRANGE", EVENTS, "+", "-", "COUNT", 1000)).encode())
    assert len(reported) == 1
    at_the_abort = int(reported[0])
    assert 20 <= at_the_abort < ROWS
    assert queue.counts() == {"waiting": at_the_abort}
    assert queue.report("w").inserted == at_the_abort


def test_nothing_is_added_after_a_cancelled_write(spark: SparkSession, queue: Written) -> None:
    def cancel_later() -> None:
        use_session(spark)
        until(lambda: queue.counts().get("waiting", 0) >= 20, "rows were written")
        spark.sparkContext.cancelJobsWithTag("cancelled")

    canceller = threading.Thread(target=cancel_later)
    spark.sparkContext.addJobTag("cancelled")
    canceller.start()
    try:
        with pytest.raises(Exception, match=r"(?i)cancelled"):
            write(rows(spark, ROWS, 2), queue)
    finally:
        spark.sparkContext.removeJobTag("cancelled")
        canceller.join()
    nothing_came_after(queue)


def test_nothing_is_added_after_a_task_has_failed_and_a_rerun_adds_the_rest(
    spark: SparkSession, queue: Written
) -> None:
    url = queue.url

    def fail(source: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        if context and context.partitionId() == 1:
            arrived(url, "j20")
            raise RuntimeError("this task fails")
        yield from source

    frame = rows(spark, ROWS, 2)
    with pytest.raises(PySparkException, match="this task fails"):
        write(frame.mapInArrow(fail, SCHEMA), queue)
    nothing_came_after(queue)
    again = write(frame, queue, rate=None)
    assert (again.state, again.inserted, again.duplicate, again.runs) == ("committed", ROWS, 0, 2)
    assert queue.counts() == {"waiting": ROWS}


def test_a_run_of_a_write_ends_the_one_before_and_is_not_ended_by_it(
    spark: SparkSession, queue: Written, tmp_path: Path
) -> None:
    ended = tmp_path / "ended"

    def wait(source: Iterator[Any]) -> Iterator[Any]:
        yield from source
        until(ended.exists, "the first run ended")

    second: list[WriteReport] = []

    def take_over() -> None:
        use_session(spark)
        until(lambda: queue.counts().get("waiting", 0) >= 20, "rows were written")
        second.append(write(rows(spark, 400, 1).mapInArrow(wait, SCHEMA), queue, rate=None))

    other = threading.Thread(target=take_over)
    other.start()
    try:
        with pytest.raises(PySparkException, match="was taken over by another run of it"):
            write(rows(spark, ROWS, 1), queue)
    finally:
        ended.touch()
        other.join()
    (report,) = second
    assert (report.state, report.duplicate, report.runs) == ("committed", 0, 2)
    assert queue.counts() == {"waiting": report.inserted}
    assert 400 <= report.inserted < ROWS
