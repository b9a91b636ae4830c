"""The Spark executor with a Classic session: the thread of a run, its progress, and the outcomes of errors."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import itertools
import pickle
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import Row

from glidemq_async import Depends, GlideMQ, UnrecoverableError
from glidemq_async.errors import ExecutorError
from glidemq_async.spark import SparkExecutor
from tests.spark.driver.work import sleeping, spark_worker, submitted
from tests.support.helpers import AnyJob, AnyQueue, ended, soon

pytestmark = pytest.mark.only_on("unix")


def properties(spark: SparkSession) -> dict[str, str | None]:
    names = ("spark.jobGroup.id", "spark.job.description", "spark.scheduler.pool", "ours")
    return {name: spark.sparkContext.getLocalProperty(name) for name in names}


async def test_a_function_has_an_active_session_and_labelled_work(queue: AnyQueue, spark: SparkSession) -> None:
    def build(spark: SparkSession, job: AnyJob) -> dict[str, Any]:
        active: Any = SparkSession.getActiveSession()
        mine: Any = spark
        found: dict[str, Any] = dict(properties(spark))
        found["tags"] = sorted(spark.sparkContext.getJobTags())
        found["active"] = active is not None and active._jsparkSession.equals(mine._jsparkSession)
        found["rows"] = spark.range(job.data).count()
        return found

    async with spark_worker(queue, build, spark):
        job = await queue.add("daily", 7, job_id="day-1")
        found = await job.result(30)
    assert (found["rows"], found["active"], found["spark.scheduler.pool"]) == (7, True, queue.name)
    assert found["spark.job.description"] == f"{queue.name}: daily day-1"
    assert found["tags"] == [found["spark.jobGroup.id"]]


async def test_settings_of_a_run_do_not_reach_the_next_run(queue: AnyQueue, spark: SparkSession) -> None:
    def work(spark: SparkSession, job: AnyJob) -> dict[str, Any]:
        before = properties(spark) | {"tags": sorted(spark.sparkContext.getJobTags())}
        spark.sparkContext.setLocalProperty("ours", "left")
        spark.sparkContext.addJobTag("left")
        spark.sparkContext.setJobGroup("left", "left")
        return before

    async with spark_worker(queue, work, spark, on={"threads": 1, "pool": "reports"}):
        first, second = [await (await queue.add("n")).result(30) for _ in range(2)]
    assert second["ours"] is None
    assert second["spark.scheduler.pool"] == "reports"
    assert second["tags"] == [second["spark.jobGroup.id"]] != first["tags"]
    assert properties(spark) == dict.fromkeys(properties(spark))


async def test_a_function_may_take_the_job_only(queue: AnyQueue, spark: SparkSession) -> None:
    def with_session(session: SparkSession, job: AnyJob) -> int:
        return session.range(job.data).count()

    async with spark_worker(queue, partial(with_session, spark), spark):
        assert await (await queue.add("n", 3)).result(30) == 3


async def test_a_task_gets_the_session_and_its_arguments(queue: AnyQueue, spark: SparkSession) -> None:
    mq = GlideMQ(queue.storage)
    on_spark = SparkExecutor(spark)

    @mq.task(queue=queue.name, executor=on_spark)
    def square(numbers: tuple[int, ...], *, spark: SparkSession = Depends(on_spark.session)) -> list[int]:
        assert isinstance(numbers, tuple)
        rows = spark.createDataFrame([(number,) for number in numbers], "n long").selectExpr("n * n AS s").collect()
        return sorted(row.s for row in rows)

    async with mq, mq.worker(handle_signals=False):
        job = await square.add((3, 1, 2))
        assert await square.result(job.id, 30) == [1, 4, 9]
    assert square((2,), spark=spark) == [4]


class Lines(DataSource):
    """A Python sink, which Spark finds only in threads with an active session."""

    @classmethod
    def name(cls) -> str:
        return "lines_of_a_test"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        return _LinesWriter()


class _LinesWriter(DataSourceWriter):
    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        list(iterator)
        return WriterCommitMessage()


async def test_writes_and_stream_writes_work_in_the_executors_thread(
    queue: AnyQueue, spark: SparkSession, tmp_path: Path
) -> None:
    spark.dataSource.register(Lines)

    def write(spark: SparkSession, job: AnyJob) -> int:
        spark.range(3).write.format("lines_of_a_test").mode("append").save()
        source, out = str(tmp_path / "in"), str(tmp_path / "out")
        spark.range(4).write.parquet(source)
        stream = spark.readStream.schema("id long").parquet(source).writeStream.format("parquet")
        query = stream.option("checkpointLocation", f"{out}-cp").trigger(availableNow=True).start(out)
        query.awaitTermination()
        return spark.read.parquet(out).count()

    async with spark_worker(queue, write, spark):
        assert await (await queue.add("n")).result(60) == 4


async def test_progress_grows_with_the_stages(queue: AnyQueue, spark: SparkSession) -> None:
    reported: list[Any] = []
    known = 0

    def work(spark: SparkSession, job: AnyJob) -> None:
        nonlocal known
        for tasks in (6, 10):  # Spark reports tasks with a delay after their end
            sleeping(spark, tasks=tasks, ms=150).collect()
        known = 16

    async with spark_worker(queue, work, spark, on={"progress_interval": 0.05}):
        job = await queue.add("n")
        while await job.get_state() not in ("completed", "failed"):
            reported.append(job.progress)
            await asyncio.sleep(0.02)
        reported.append(job.progress)
        assert job.state == "completed", job.failed_reason
    seen = [progress for progress in reported if progress]
    assert len({progress["done"] for progress in seen}) >= 3
    for before, after in itertools.pairwise(seen):
        assert all(before[name] <= after[name] for name in ("done", "known", "stages", "percent"))
    assert known == 16 >= seen[-1]["done"] > 6


async def test_progress_that_a_function_reports_is_not_overwritten(queue: AnyQueue, spark: SparkSession) -> None:
    def work(spark: SparkSession, job: AnyJob) -> None:
        job.sync.update_progress("mine")
        sleeping(spark, ms=400).collect()

    async with spark_worker(queue, work, spark, on={"progress_interval": 0.05}):
        assert (await ended(await queue.add("n"))).progress == "mine"


@pytest.mark.parametrize("text", ["SELECT x FROM no_such_table", "SELEC x"])
async def test_a_query_that_cannot_be_analysed_is_not_retried(queue: AnyQueue, spark: SparkSession, text: str) -> None:
    def work(spark: SparkSession, job: AnyJob) -> None:
        spark.sql(text).collect()

    async with spark_worker(queue, work, spark):
        job = await ended(await queue.add("n", attempts=3))
    assert (job.state, job.failure_cause, job.fence) == ("failed", "unrecoverable", 1)
    assert (job.failed_reason or "").startswith(("AnalysisException: [TABLE", "ParseException: [PARSE"))


async def test_an_error_of_the_data_is_retried_and_stored_in_full(queue: AnyQueue, spark: SparkSession) -> None:
    def work(spark: SparkSession, job: AnyJob) -> None:
        spark.range(2).selectExpr("raise_error('the file is torn')").collect()

    async with spark_worker(queue, work, spark):
        job = await ended(await queue.add("n", attempts=2))
    assert (job.state, job.failure_cause, job.fence) == ("failed", "retries_exhausted", 2)
    assert "the file is torn" in (job.failed_reason or "")
    assert "raise_error" in (job.stacktrace or "")


async def test_work_that_a_user_cancels_in_spark_is_not_retried(queue: AnyQueue, spark: SparkSession) -> None:
    groups: list[str] = []
    begun = threading.Event()

    def work(spark: SparkSession, job: AnyJob) -> None:
        groups.append(str(spark.sparkContext.getLocalProperty("spark.jobGroup.id")))
        begun.set()
        sleeping(spark).collect()

    async with spark_worker(queue, work, spark):
        job = await queue.add("n", attempts=3)
        await soon(asyncio.to_thread(begun.wait, 10))
        tracker = spark.sparkContext.statusTracker()
        while not await asyncio.to_thread(tracker.getJobIdsForGroup, groups[0]):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        spark.sparkContext.cancelJobGroup(groups[0])
        job = await ended(job)
    assert (job.failure_cause, job.fence) == ("unrecoverable", 1)
    assert "cancelled" in (job.failed_reason or "")


async def test_the_event_loop_stays_free_while_an_action_runs(
    queue: AnyQueue, spark: SparkSession, tmp_path: Path
) -> None:
    """The loop ends the action after many turns. The benchmark measures the duration of a turn."""
    turned = str(tmp_path / "turned")

    def work(spark: SparkSession, job: AnyJob) -> int:
        def wait(number: int) -> int:
            end = time.monotonic() + 60
            while not Path(turned).exists():
                if time.monotonic() > end:
                    raise TimeoutError("the loop did not turn")
                time.sleep(0.01)
            return number

        return int(spark.sparkContext.parallelize([7], 1).map(wait).sum())

    async with spark_worker(queue, work, spark, on={"progress_interval": 0.1}):
        job = await queue.add("n")
        await submitted(spark)
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert await job.get_state() == "active"
        await asyncio.to_thread(Path(turned).touch)
        assert await job.result(60) == 7


async def test_wrong_handlers_and_sessions_are_refused_when_the_worker_is_created(
    queue: AnyQueue, spark: SparkSession
) -> None:
    async def coroutine(job: AnyJob) -> None: ...
    def three(a: int, b: int, c: int) -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        spark_worker(queue, coroutine, spark)
    async with spark_worker(queue, three, spark):
        assert "(spark, job)" in ((await ended(await queue.add("n"))).failed_reason or "")
    not_a_session: Any = object()
    with pytest.raises(TypeError, match="must be a Spark session"):
        SparkExecutor(not_a_session)
    with pytest.raises(TypeError, match="Spark Connect"):
        pickle.dumps(SparkExecutor(spark))


async def test_control_flow_exceptions_work_in_spark_functions(queue: AnyQueue, spark: SparkSession) -> None:
    def work(spark: SparkSession, job: AnyJob) -> None:
        raise UnrecoverableError("no such day")

    async with spark_worker(queue, work, spark):
        job = await ended(await queue.add("n", attempts=3))
    assert (job.failure_cause, job.failed_reason) == ("unrecoverable", "UnrecoverableError: no such day")


async def test_a_forked_child_cannot_use_the_executor(queue: AnyQueue, spark: SparkSession) -> None:
    executor = SparkExecutor(spark)
    executor._process -= 1
    with pytest.raises(ExecutorError, match="forked child"):
        await executor.start(lambda: None)
