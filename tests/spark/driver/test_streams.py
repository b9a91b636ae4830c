"""Streaming queries and queues: events as jobs, micro-batches as jobs, and a query as a job."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from glidemq_async import JobOptions, Queue
from glidemq_async.spark import QueryEvent, QueryListener, foreach_batch, run_stream
from tests.spark.driver.work import spark_worker
from tests.support.helpers import AnyJob, AnyQueue, ended, until
from tests.support.stores import RunningStore

pytestmark = pytest.mark.only_on("unix")

Batch = Callable[[DataFrame, int], None]


class Files:
    """A folder of files with one row each. A query reads one file per batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        (folder / "in").mkdir()
        self.checkpoint = str(folder / "checkpoint")

    def add(self, count: int) -> None:
        for _ in range(count):
            number = len(list((self._folder / "in").iterdir()))
            (self._folder / "in" / f"{number}.txt").write_text(f"{number}\n")

    def start(self, each: Batch | None = None, *, once: bool = True) -> StreamingQuery:
        rows = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._folder / "in"))
        writer = rows.writeStream.option("checkpointLocation", self.checkpoint)
        if once:
            writer = writer.trigger(availableNow=True)
        return (writer.format("noop") if each is None else writer.foreachBatch(each)).start()

    def run(self, each: Batch | None = None) -> str:
        """Read all files and return the id of the query."""
        query = self.start(each)
        assert query.awaitTermination(60)
        return str(query.id)

    def repeat_last(self) -> None:
        """Remove the commit of the last batch, as if Spark had died before it."""
        commits = Path(self.checkpoint, "commits")
        last = max((path for path in commits.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    made = Files(spark, tmp_path)
    made.add(2)
    return made


async def jobs_of(queue: AnyQueue) -> dict[str, Any]:
    return {job.id: job.data for job in await queue.get_jobs("waiting")}


async def test_events_of_a_query_become_jobs(queue: AnyQueue, spark: SparkSession, files: Files) -> None:
    listener = QueryListener(queue).attach(spark)
    query_id = await asyncio.to_thread(files.run)
    await until(lambda: listener.stats.added >= 4)
    assert await asyncio.to_thread(listener.close)
    found = await jobs_of(queue)
    kinds = sorted(data["kind"] for data in found.values())
    assert kinds == ["progress", "progress", "started", "terminated"]
    first = found[f"{query_id}:progress:0"]
    assert (first["rows"], first["query_id"], len(first["sources"])) == (1, query_id, 1)
    assert listener.stats.dropped == listener.stats.failed == 0


async def test_a_listener_that_raises_does_not_affect_queries(
    queue: AnyQueue, spark: SparkSession, files: Files
) -> None:
    def build(event: QueryEvent) -> object:
        if event.kind == "progress":
            raise ValueError("broken")
        return None if event.kind == "started" else event.query_id

    listener = QueryListener(queue, build=build, name="etl").attach(spark)
    query_id = await asyncio.to_thread(files.run)
    await until(lambda: listener.stats.added == 1)
    assert await asyncio.to_thread(listener.close)
    (job,) = await queue.get_jobs("waiting")
    assert (job.name, job.data) == ("etl.terminated", query_id)
    assert (listener.stats.failed, listener.stats.left_out) == (2, 1)


async def test_unreported_batches_are_reported_at_the_next_start(
    queue: AnyQueue, spark: SparkSession, files: Files
) -> None:
    """The driver has died after the commit of the second batch, with its event in the buffer."""
    query_id = await asyncio.to_thread(files.run)
    expected = f"{query_id}:progress:0"
    first = QueryListener(queue)
    first._handoff.put(QueryEvent("progress", query_id, "", {"batch_id": 0}))
    with pytest.raises(RuntimeError, match="to_thread"):
        first.close()
    assert await asyncio.to_thread(first.close)
    (job,) = await queue.get_jobs("waiting")
    assert job.id == expected
    await job.remove()  # it has ended and is forgotten
    listener = QueryListener(queue, checkpoints=[files.checkpoint, f"{files.checkpoint}-not-yet"])
    await asyncio.to_thread(listener.attach, spark)
    assert await asyncio.to_thread(listener.close)
    assert await jobs_of(queue) == {
        f"{query_id}:progress:1": {
            "kind": "progress",
            "query_id": query_id,
            "run_id": "",
            "batch_id": 1,
            "reconciled": True,
        }
    }


async def test_the_callback_returns_immediately(queue: AnyQueue) -> None:
    """The thread of the listener reads the event, even if the server does not answer."""
    listener = QueryListener(queue, capacity=10_000)
    seconds: list[float] = []
    event: Any = object()
    for _ in range(1000):
        began = time.perf_counter()
        listener.onQueryProgress(event)
        seconds.append(time.perf_counter() - began)
    # Most of them, because the thread of the listener and other processes may take the processor.
    assert median(seconds) < 0.005
    assert await asyncio.to_thread(listener.close)
    assert listener.stats.failed == 1000


async def test_a_batch_that_is_repeated_adds_its_jobs_once(queue: AnyQueue, files: Files) -> None:
    def build(frame: DataFrame, batch_id: int) -> Iterable[tuple[str, Any]]:
        count = frame.count()
        return [("summary", {"batch": batch_id, "rows": count}), ("check", batch_id)]

    each = foreach_batch(queue, build)
    query_id = await asyncio.to_thread(files.run, each)
    expected = {
        f"{query_id}:0": {"batch": 0, "rows": 1},
        f"{query_id}:0:1": 0,
        f"{query_id}:1": {"batch": 1, "rows": 1},
        f"{query_id}:1:1": 1,
    }
    assert await jobs_of(queue) == expected
    for job in await queue.get_jobs("waiting"):
        if job.id.startswith(f"{query_id}:1"):
            await job.remove()  # it has ended and is forgotten
    files.repeat_last()
    await asyncio.to_thread(files.run, each)
    assert list(await jobs_of(queue)) == [f"{query_id}:0", f"{query_id}:0:1"]


async def test_foreach_batch_accepts_custom_ids_and_the_name_of_a_queue(
    queue: AnyQueue, store: RunningStore, files: Files
) -> None:
    def build(frame: DataFrame, batch_id: int) -> Iterable[tuple[str, Any, JobOptions]] | None:
        return [("n", batch_id, JobOptions(job_id=f"mine-{batch_id}", priority=2))] if batch_id else None

    each = foreach_batch(queue.name, build, url=store.url, key="orders")
    await asyncio.to_thread(files.run, each)
    await asyncio.to_thread(each.close)
    (job,) = await queue.get_jobs("prioritized")
    assert (job.id, job.data) == ("mine-1", 1)


async def test_a_batch_whose_jobs_cannot_be_stored_fails_the_query(files: Files) -> None:
    closed: Queue[Any, Any] = Queue("closed", "memory://")
    await closed.close()
    each = foreach_batch(closed, lambda frame, batch_id: [("n", batch_id)])
    with pytest.raises(Exception, match="closed"):
        await asyncio.to_thread(files.run, each)


async def test_a_query_is_a_job_that_ends_with_it(queue: AnyQueue, spark: SparkSession, files: Files) -> None:
    def work(spark: SparkSession, job: AnyJob) -> Any:
        return run_stream(job, files.start(), interval=0.1)

    async with spark_worker(queue, work, spark):
        job = await ended(await queue.add("n"))
    assert job.state == "completed", job.failed_reason
    assert job.progress == job.return_value
    assert (job.return_value or {})["batch_id"] == 1


async def test_a_query_is_stopped_with_its_job_and_continues_later(
    queue: AnyQueue, spark: SparkSession, files: Files
) -> None:
    batches: list[int] = []

    def work(spark: SparkSession, job: AnyJob) -> Any:
        query = files.start(lambda frame, batch_id: batches.append(batch_id), once=False)
        return run_stream(job, query, interval=0.1)

    async with spark_worker(queue, work, spark, shutdown_timeout=0.1):
        job = await queue.add("n")
        await until(lambda: len(batches) >= 2)
    await job.refresh()
    assert (job.state, job.attempts_made, spark.streams.active) == ("waiting", 0, [])
    files.add(1)
    async with spark_worker(queue, work, spark):
        await until(lambda: 2 in batches)
        await job.revoke()
        assert (await ended(job)).failed_reason == "revoked"
    assert spark.streams.active == []


async def test_a_query_that_fails_fails_its_job(queue: AnyQueue, spark: SparkSession, files: Files) -> None:
    def broken(frame: DataFrame, batch_id: int) -> None:
        raise ValueError("this batch is broken")

    def work(spark: SparkSession, job: AnyJob) -> Any:
        return run_stream(job, files.start(broken), interval=0.1)

    async with spark_worker(queue, work, spark):
        job = await ended(await queue.add("n", attempts=2))
    assert (job.state, job.fence) == ("failed", 2)
    assert (job.failed_reason or "").startswith("StreamingQueryException: [STREAM_FAILED]")
    assert "this batch is broken" in (job.stacktrace or "")
