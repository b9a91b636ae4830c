"""Stopping a job stops its Spark work, in each phase and whatever the function does."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.driver.work import sleeping, spark_worker, submitted
from tests.support.helpers import AnyJob, AnyQueue, ended

pytestmark = pytest.mark.only_on("unix")


def long(spark: SparkSession, job: AnyJob) -> None:
    sleeping(spark).collect()


async def test_a_revoked_action_ends_immediately(queue: AnyQueue, spark: SparkSession) -> None:
    free = threading.Event()

    def work(spark: SparkSession, job: AnyJob) -> None:
        try:
            sleeping(spark).collect()
        finally:
            free.set()

    async with spark_worker(queue, work, spark):
        job = await queue.add("n", attempts=3)
        await submitted(spark)
        await job.revoke()
        # Without a cancellation the action sleeps for a minute. The benchmark measures the exact time.
        assert await asyncio.to_thread(free.wait, 40)
        job = await ended(job)
    assert (job.state, job.failed_reason, job.fence) == ("failed", "revoked", 1)


async def test_a_cancellation_before_the_submission_is_not_lost(queue: AnyQueue, spark: SparkSession) -> None:
    begun = threading.Event()

    def work(spark: SparkSession, job: AnyJob) -> str:
        begun.set()
        job.abort.wait_in_thread(10)
        time.sleep(0.3)  # the first cancellation has gone by when this is submitted
        sleeping(spark).collect()
        return "ran to its end"

    async with spark_worker(queue, work, spark):
        job = await queue.add("n")
        assert await asyncio.to_thread(begun.wait, 10)
        await job.revoke()
        assert (await ended(job)).failed_reason == "revoked"


async def test_a_shuffle_is_cancelled(queue: AnyQueue, spark: SparkSession) -> None:
    def work(spark: SparkSession, job: AnyJob) -> None:
        slow = "reflect('java.lang.Thread', 'sleep', 30000L)"
        spark.range(100).repartition(2).selectExpr("id", f"{slow} AS s").groupBy("s").count().collect()

    async with spark_worker(queue, work, spark):
        job = await queue.add("n", timeout=60)
        await submitted(spark)
        await job.revoke()
        assert (await ended(job)).failed_reason == "revoked"
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


async def test_each_action_of_a_function_that_ignores_errors_is_cancelled(queue: AnyQueue, spark: SparkSession) -> None:
    errors: list[str] = []

    def work(spark: SparkSession, job: AnyJob) -> str:
        for _ in range(3):
            try:
                sleeping(spark).collect()
            except Exception as error:  # noqa: BLE001
                errors.append(type(error).__name__)
        return "all is well"

    async with spark_worker(queue, work, spark):
        job = await queue.add("n")
        await submitted(spark)
        await job.revoke()
        job = await ended(job)
    assert (job.state, job.failed_reason, len(errors)) == ("failed", "revoked", 3)


async def test_a_timeout_cancels_the_action(queue: AnyQueue, spark: SparkSession) -> None:
    async with spark_worker(queue, long, spark):
        job = await ended(await queue.add("n", timeout=1))
    assert (job.failed_reason or "").startswith("TimeoutError")
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


async def test_a_worker_that_stops_cancels_and_releases(queue: AnyQueue, spark: SparkSession) -> None:
    async with spark_worker(queue, long, spark, shutdown_timeout=0.1):
        job = await queue.add("n")
        await submitted(spark)
    await job.refresh()
    assert (job.state, job.attempts_made) == ("waiting", 0)
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


async def test_only_the_work_of_the_stopped_job_is_cancelled(queue: AnyQueue, spark: SparkSession) -> None:
    begun, over = threading.Event(), threading.Event()

    def work(spark: SparkSession, job: AnyJob) -> int:
        if job.data == "long":
            begun.set()
            long(spark, job)
        actions = 0
        while not over.is_set() or not actions:
            sleeping(spark, tasks=1, ms=20).collect()
            actions += 1
        return actions

    async with spark_worker(queue, work, spark, concurrency=2):
        short = await queue.add("n", "short")
        other = await queue.add("n", "long")
        assert await asyncio.to_thread(begun.wait, 10)
        await other.revoke()
        assert (await ended(other)).failed_reason == "revoked"
        over.set()
        assert await short.result(20) >= 1


async def test_the_slot_is_kept_until_the_python_workers_of_spark_have_ended(
    queue: AnyQueue, spark: SparkSession, tmp_path: Path
) -> None:
    """Spark gives a Python worker two seconds after the cancellation of its task."""
    folder = str(tmp_path)

    def written() -> list[float]:
        return [path.stat().st_mtime for path in tmp_path.iterdir()]

    def work(spark: SparkSession, job: AnyJob) -> None:
        def slow(number: int) -> int:
            from pathlib import Path

            for _ in range(600):
                Path(folder, str(number)).touch()
                time.sleep(0.05)
            return number

        spark.sparkContext.parallelize(range(2), 2).map(slow).collect()

    async with spark_worker(queue, work, spark):
        job = await queue.add("n")
        async with asyncio.timeout(60):
            while len(written()) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await job.revoke()
        assert (await ended(job)).failed_reason == "revoked"
    # Each task would continue for half a minute.
    async with asyncio.timeout(10):
        while time.time() - max(written()) < 0.5:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
