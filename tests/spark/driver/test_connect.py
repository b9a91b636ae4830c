"""The driver side over Spark Connect, with a server in the JVM of the tests."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkPicklingError
from pyspark.sql import DataFrame, SparkSession

from glidemq_async import Worker
from glidemq_async.errors import ExecutorError
from glidemq_async.executors import SubprocessExecutor
from glidemq_async.spark import QueryListener, SparkExecutor, enqueue_frame, foreach_batch, run_stream
from tests.spark.driver.test_streams import Files, jobs_of
from tests.spark.driver.work import count_remotely, sleeping, spark_worker, submitted
from tests.support.helpers import AnyJob, AnyQueue, ended, until
from tests.support.stores import RunningStore

pytest.importorskip("grpc")
pytestmark = pytest.mark.only_on("unix")


@pytest.fixture(scope="module")
def address(spark: SparkSession) -> Iterator[str]:
    """Return the address of a Spark Connect server in the JVM of the tests."""
    context: Any = spark.sparkContext
    context._jsc.sc().conf().set("spark.connect.grpc.binding.port", "0")
    context._jsc.sc().conf().set("spark.connect.grpc.binding.address", "127.0.0.1")
    service = getattr(context._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$").__getattr__("MODULE$")
    service.start(context._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    service.stop(getattr(service, "stop$default$1")(), getattr(service, "stop$default$2")())


@pytest.fixture(scope="module")
def remote(address: str) -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    session = RemoteSession.builder.remote(address).create()
    yield session
    session.stop()


async def test_frames_are_written_and_read(queue: AnyQueue, store: RunningStore, remote: Any, tmp_path: Path) -> None:
    frame = remote.range(0, 300, 1, 3).selectExpr("id", "struct(id AS n) AS data", "'n' AS name")
    made = await asyncio.to_thread(enqueue_frame, frame, queue.name, url=store.url)
    again = await asyncio.to_thread(enqueue_frame, frame, queue.name, url=store.url)
    assert (made.state, made.inserted, again.duplicate) == ("committed", 300, 300)
    options = {"url": store.url, "subscribe": queue.name}

    def read() -> tuple[int, int, int]:
        jobs = remote.read.format("glidemq").options(**options, kind="jobs").load().where("state = 'waiting'").count()
        stream = remote.readStream.format("glidemq").options(**options, startingOffsets="earliest").load()
        writer = stream.where("event = 'added'").writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "check")).start(str(tmp_path / "out"))
        query.awaitTermination(120)
        lake = remote.read.parquet(str(tmp_path / "out"))
        return jobs, lake.count(), lake.select("seq").distinct().count()

    assert await asyncio.to_thread(read) == (300, 300, 300)


async def test_a_function_gets_the_session_and_its_work_can_be_stopped(
    queue: AnyQueue, spark: SparkSession, remote: Any
) -> None:
    tags: list[set[str]] = []
    errors: list[Exception] = []

    def work(session: Any, job: AnyJob) -> int:
        tags.append(session.getTags())
        if job.data == "count":
            return int(session.range(5).count())
        for _ in range(2):
            try:
                sleeping(session).collect()
            except Exception as error:  # noqa: BLE001
                errors.append(error)
        return 0

    async with spark_worker(queue, work, remote):
        assert await (await queue.add("n", "count")).result(30) == 5
        job = await queue.add("n", "sleep")
        await submitted(spark)
        await job.revoke()
        assert (await ended(job)).failed_reason == "revoked"
    assert len(errors) == 2
    assert len(tags[0]) == len(tags[1]) == 1
    assert tags[0] != tags[1]
    assert remote.getTags() == set()


@pytest.mark.slow
async def test_progress_follows_the_messages_of_the_server(queue: AnyQueue, remote: Any) -> None:
    def work(session: Any, job: AnyJob) -> int:
        return len(sleeping(session, tasks=12, ms=700).collect())

    async with spark_worker(queue, work, remote, on={"progress_interval": 0.1}):
        job = await ended(await queue.add("n"))
    progress: Any = job.progress
    assert job.return_value == 12, job.failed_reason
    assert 0 < progress["done"] <= progress["known"] == 12


async def test_errors_have_the_same_outcomes_as_on_classic(queue: AnyQueue, remote: Any) -> None:
    def work(session: Any, job: AnyJob) -> None:
        session.sql(job.data).collect()

    async with spark_worker(queue, work, remote):
        wrong = await ended(await queue.add("n", "SELECT x FROM no_such_table", attempts=3))
        torn = await ended(await queue.add("n", "SELECT raise_error('torn')", attempts=2))
    assert (wrong.failure_cause, wrong.fence) == ("unrecoverable", 1)
    assert (wrong.failed_reason or "").startswith("AnalysisException")
    assert (torn.failure_cause, torn.fence) == ("retries_exhausted", 2)
    assert "torn" in (torn.failed_reason or "")


@pytest.mark.slow
async def test_work_that_a_user_interrupts_is_not_retried(queue: AnyQueue, spark: SparkSession, remote: Any) -> None:
    tags: list[str] = []
    begun = threading.Event()

    def work(session: Any, job: AnyJob) -> None:
        tags.extend(session.getTags())
        begun.set()
        sleeping(session).collect()

    async with spark_worker(queue, work, remote):
        job = await queue.add("n", attempts=3)
        assert await asyncio.to_thread(begun.wait, 20)
        await submitted(spark)
        await asyncio.to_thread(remote.interruptTag, tags[0])
        job = await ended(job)
    assert (job.failure_cause, job.fence) == ("unrecoverable", 1)


async def test_a_stopped_session_refuses_a_worker(queue: AnyQueue, address: str) -> None:
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    other: Any = await asyncio.to_thread(lambda: RemoteSession.builder.remote(address).create())
    await asyncio.to_thread(other.stop)
    with pytest.raises(ExecutorError, match="Connect session"):
        await SparkExecutor(other).start(lambda: None)


@pytest.mark.slow
async def test_the_batches_of_a_remote_query_add_jobs(
    queue: AnyQueue, store: RunningStore, remote: Any, tmp_path: Path
) -> None:
    def build(frame: DataFrame, batch_id: int) -> list[tuple[str, Any]]:
        return [("summary", {"batch": batch_id, "rows": frame.count()})]

    files = Files(remote, tmp_path)
    files.add(2)
    each = foreach_batch(queue.name, build, url=store.url, key="orders")
    await asyncio.to_thread(files.run, each)
    assert await jobs_of(queue) == {f"orders:{n}": {"batch": n, "rows": 1} for n in range(2)}


async def test_a_function_that_cannot_be_pickled_names_the_remedy(
    queue: AnyQueue, store: RunningStore, remote: Any, tmp_path: Path
) -> None:
    files = Files(remote, tmp_path)
    files.add(1)
    with pytest.raises(PySparkPicklingError) as refused:
        await asyncio.to_thread(files.run, foreach_batch(queue, lambda frame, batch_id: [("n", 1)]))
    # Spark raises another error, with ours above it in the traceback.
    assert "pass the queue's name and url=" in "".join(traceback.format_exception(refused.value))
    nameless = foreach_batch(queue.name, lambda frame, batch_id: [("n", 1)], url=store.url)
    with pytest.raises(Exception, match="pass key= to foreach_batch"):
        await asyncio.to_thread(files.run, nameless)


async def test_events_reach_the_clients_process_and_a_query_is_a_job(
    queue: AnyQueue, remote: Any, tmp_path: Path
) -> None:
    files = Files(remote, tmp_path)
    files.add(2)
    listener = QueryListener(queue, on={"progress", "terminated"})
    await asyncio.to_thread(listener.attach, remote)

    def work(session: Any, job: AnyJob) -> Any:
        return run_stream(job, files.start(), interval=0.1) if job.name == "n" else None

    async with spark_worker(queue, work, remote):
        job = await ended(await queue.add("n"))
        assert job.state == "completed", job.failed_reason
        assert (job.return_value or {})["batch_id"] == 1
        await until(lambda: listener.stats.added >= 3)
        await asyncio.to_thread(listener.close)
    assert listener.stats.failed == 0


async def test_a_child_process_opens_its_own_session(queue: AnyQueue, address: str) -> None:
    options: Any = {"executor": SubprocessExecutor(1), "handle_signals": False, "poll_interval": 60}
    async with Worker(queue.name, count_remotely, queue.storage, **options):
        assert await (await queue.add("n", address)).result(60) == 5
