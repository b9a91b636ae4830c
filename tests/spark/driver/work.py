"""Spark work of a given duration, without Python workers."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from glidemq_async import Job, Queue, Worker
from glidemq_async.spark import SparkExecutor


def sleeping(spark: SparkSession, *, tasks: int = 2, ms: int = 60_000) -> DataFrame:
    """Return a frame whose tasks sleep for `ms` milliseconds. A cancellation wakes them."""
    return spark.range(0, tasks, 1, tasks).selectExpr(f"reflect('java.lang.Thread', 'sleep', {ms}L) AS slept")


def spark_worker(queue: Queue[Any, Any], function: Any, spark: SparkSession, **options: Any) -> Worker[Any, Any]:
    """Return a worker for a function of (spark, job). `on` contains options of the executor."""
    executor = SparkExecutor(spark, **options.pop("on", {}))
    options.setdefault("poll_interval", 60)
    options.setdefault("shutdown_timeout", 5)
    return Worker(queue.name, function, queue.storage, handle_signals=False, executor=executor, **options)


async def submitted(spark: SparkSession, jobs: int = 1) -> None:
    """Wait until at least `jobs` tasks run."""
    tracker = spark.sparkContext.statusTracker()

    def running() -> int:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return sum(1 for stage in stages if stage is not None and stage.numActiveTasks)

    async with asyncio.timeout(30):
        while await asyncio.to_thread(running) < jobs:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def count_remotely(job: Job[Any, Any]) -> int:
    """A handler for a child process. It opens a session of Spark Connect there."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    remote: Any = RemoteSession.builder
    return int(remote.remote(job.data).getOrCreate().range(5).count())
