"""Tasks that fail and are retried, and queues that are full or obliterated: the jobs at the end."""

# pyspark's own annotations are incomplete, and pyarrow has none.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from glidemq_async.spark import enqueue_frame
from tests.spark.waiting import arrived
from tests.spark.writing.conftest import Written

pytestmark = [pytest.mark.only_on("unix"), pytest.mark.usefixtures("_small_batches")]

#: Ten rows are more than the buffers of 64 KiB between the JVM and its Python workers, which are flushed when full.
FILL = '"' + "x" * 8000 + '"'
BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture
def _small_batches(spark: SparkSession) -> Iterator[None]:
    """Make Spark pass ten rows to a writer as soon as they exist, and not in batches of thousands."""
    before = spark.conf.get(BATCH)
    spark.conf.set(BATCH, "10")
    yield
    spark.conf.set(BATCH, before or "10000")


SCHEMA = "id string, name string, data string"


def batches(spark: SparkSession, rows: int, step: Callable[[int], None], partitions: int = 2) -> DataFrame:
    """Return rows j0, j1, … that each partition creates in tens. step(partition) runs before each ten."""

    def make(source: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        for batch in source:
            step(partition)
            some: list[int] = batch.column(0).to_pylist()
            columns = [[f"j{n}" for n in some], ["n"] * len(some), [FILL] * len(some)]
            yield pa.record_batch(columns, names=["id", "name", "data"])

    return spark.range(0, rows, 1, partitions).mapInArrow(make, SCHEMA)


def failing(queue: Written, attempts: int) -> Callable[[int], None]:
    """Return a step that fails in partition 1 after its first ten rows are jobs, in the first `attempts` attempts."""
    url = queue.url
    seen: list[int] = []

    def step(partition: int) -> None:
        context = TaskContext.get()
        seen.append(partition)
        if context and partition == 1 and len(seen) == 5 and context.attemptNumber() < attempts:
            arrived(url, "j100")
            raise RuntimeError("this attempt ends here")

    return step


def test_a_retried_task_adds_each_row_once(spark: SparkSession, queue: Written) -> None:
    frame = batches(spark, 200, failing(queue, 2))
    report = enqueue_frame(frame, queue.name, url=queue.url, batch_size=10)
    assert (report.state, report.inserted, report.duplicate) == ("committed", 200, 0)
    # The two earlier attempts had added ten to forty rows each, which were sent again.
    assert 20 <= report.replayed <= 80
    assert queue.counts() == {"waiting": 200}


@pytest.mark.slow
def test_a_full_queue_pauses_the_write(spark: SparkSession, queue: Written) -> None:
    seen: list[int] = []
    done = threading.Event()

    def drain() -> None:
        while not done.is_set():
            waiting = queue.counts().get("waiting", 0)
            seen.append(waiting)
            if waiting > 30:
                queue.run()

    drainer = threading.Thread(target=drain)
    drainer.start()
    try:
        report = enqueue_frame(
            batches(spark, 200, lambda _: None), queue.name, url=queue.url, batch_size=10, max_queue_depth=40
        )
    finally:
        done.set()
        drainer.join()
    assert report.inserted == 200
    assert 40 < max(seen) <= 40 + 2 * 10


@pytest.mark.slow
def test_a_queue_that_stays_full_ends_the_write(spark: SparkSession, queue: Written) -> None:
    with pytest.raises(PySparkException, match=r"queue 'orders' has .* waiting jobs.*check that workers run"):
        enqueue_frame(
            batches(spark, 200, lambda _: None),
            queue.name,
            url=queue.url,
            batch_size=10,
            max_queue_depth=40,
            backpressure_timeout="100ms",
        )
    assert 40 < queue.counts()["waiting"] <= 60


@pytest.mark.slow
def test_a_rate_applies_to_all_tasks_together(spark: SparkSession, queue: Written) -> None:
    report = enqueue_frame(
        batches(spark, 100, lambda _: None), queue.name, url=queue.url, batch_size=10, max_rows_per_second=100
    )
    assert report.inserted == 100
    assert report.seconds is not None
    assert report.seconds >= 0.9


@pytest.mark.slow
def test_an_obliterated_queue_ends_the_write(spark: SparkSession, queue: Written) -> None:
    def slowly(_: int) -> None:
        time.sleep(0.1)

    def obliterate() -> None:
        deadline = time.monotonic() + 30
        while queue.counts().get("waiting", 0) < 20 and time.monotonic() < deadline:
            time.sleep(0.05)
        queue.obliterate()

    other = threading.Thread(target=obliterate)
    other.start()
    with pytest.raises(PySparkException, match=r"not known|obliterated"):
        enqueue_frame(batches(spark, 400, slowly), queue.name, url=queue.url, batch_size=10)
    other.join()
    assert queue.counts() == {}
