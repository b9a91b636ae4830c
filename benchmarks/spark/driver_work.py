"""Measure Spark work as jobs: its effect on the event loop, the time to stop it, and the cost of a query listener."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent

from benchmarks.meter import percentile
from benchmarks.spark.bulk_writes import empty
from benchmarks.spark.setup import Row, Setup
from glidemq_async import Job, JobFailed, Queue, Worker
from glidemq_async.executors import Executor, ThreadExecutor
from glidemq_async.spark import QueryListener, SparkExecutor

AnyJob = Job[Any, Any]
AnyQueue = Queue[Any, Any]
PROBE: Final = 0.001
BATCHES: Final = 60
ROUNDS: Final = 3
#: Seconds after a revocation for which its tasks are observed.
QUIET_SECONDS: Final = 6.0


def _in_queue(setup: Setup, name: str, work: Callable[[AnyQueue, SparkSession], Awaitable[list[Row]]]) -> list[Row]:
    async def within() -> list[Row]:
        async with AnyQueue(name, setup.url) as queue:
            return await work(queue, setup.spark)

    empty(setup)
    setup.spark.sparkContext.parallelize(range(2), 2).map(str).count()
    return asyncio.run(within())


def loop_lag(setup: Setup) -> list[Row]:
    """Measure the delay of the event loop while a thread waits for Spark, and while the loop is idle."""
    return _in_queue(setup, "lag", _loop_lag)


def stopping(setup: Setup) -> list[Row]:
    """Measure the time from `revoke` to the end of the function, and to the end of its last Python task."""
    return _in_queue(setup, "stopping", _stopping)


def overhead(setup: Setup) -> list[Row]:
    """Measure an empty run: in a thread pool, and as labelled Spark work."""
    return _in_queue(setup, "overhead", _overhead)


def listening(setup: Setup) -> list[Row]:
    """Measure the duration of a listener's callback in a query of many small batches."""
    return _in_queue(setup, "listening", _listening)


async def ended(job: AnyJob) -> None:
    """Wait for the end of a job, however it ends."""
    try:
        await job.result(120)
    except JobFailed:
        return


async def _loop_lag(queue: AnyQueue, spark: SparkSession) -> list[Row]:

    def act(_: AnyJob) -> int:
        return spark.range(0, 30_000_000, 1, 4).selectExpr("sum(hash(id))").collect()[0][0] or 0

    executor = SparkExecutor(spark, progress_interval=0.25)
    async with Worker(queue.name, act, queue.storage, executor=executor, handle_signals=False):
        await ended(await queue.add("warm"))
        running = asyncio.ensure_future(ended(await queue.add("act")))
        busy = await _lags(running.done)
        await running
        deadline = time.perf_counter() + 1
        idle = await _lags(lambda: time.perf_counter() > deadline)
    return [
        Row("event loop, maximum delay while a Spark action runs", max(busy), "ms", "<=", 25),
        Row("event loop, maximum delay while idle", max(idle), "ms"),
    ]


async def _lags(done: Callable[[], bool]) -> list[float]:
    lags: list[float] = []
    while not done():
        before = time.perf_counter()
        await asyncio.sleep(PROBE)
        lags.append((time.perf_counter() - before - PROBE) * 1000)
    return lags


async def _stopping(queue: AnyQueue, spark: SparkSession) -> list[Row]:
    jvm: list[float] = []
    python: list[float] = []
    quiet: list[float] = []
    for _ in range(ROUNDS):
        asked, free = await _stop_one(queue, spark, _sleep_in_jvm, partial(_tasks_run, spark))
        jvm.append((free - asked) * 1000)
        with tempfile.TemporaryDirectory() as folder:
            work = partial(_sleep_in_python, folder)
            asked, free = await _stop_one(queue, spark, work, lambda: len(_touched(folder)) == 2)
            python.append((free - asked) * 1000)
            await asyncio.sleep(QUIET_SECONDS)
            quiet.append((max(_touched(folder)) - asked) * 1000)
    return [
        Row("revoke until the driver's thread is free, JVM tasks", median(jvm), "ms", "<=", 1000),
        Row("revoke until the driver's thread is free, Python tasks", median(python), "ms", "<=", 1000),
        Row("revoke until the executors are quiet, Python tasks", median(quiet), "ms", "<=", 5000),
    ]


async def _stop_one(
    queue: AnyQueue, spark: SparkSession, work: Callable[[SparkSession], object], begun: Callable[[], bool]
) -> tuple[float, float]:
    """Return the time at which a job was revoked, and the time at which its function ended."""
    free: list[float] = []

    def act(_: AnyJob) -> None:
        try:
            work(spark)
        finally:
            free.append(time.time())

    async with Worker(queue.name, act, queue.storage, executor=SparkExecutor(spark), handle_signals=False):
        job = await queue.add("n")
        while not await asyncio.to_thread(begun):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        asked = time.time()
        await job.revoke()
        await ended(job)
    return asked, free[0]


def _touched(folder: str) -> list[float]:
    return [path.stat().st_mtime for path in Path(folder).iterdir()]


def _tasks_run(spark: SparkSession) -> bool:
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return any(info is not None and info.numActiveTasks for info in infos)


def _sleep_in_jvm(spark: SparkSession) -> None:
    spark.range(0, 2, 1, 2).selectExpr("reflect('java.lang.Thread', 'sleep', 60000L)").collect()


def _sleep_in_python(folder: str, spark: SparkSession) -> None:
    def slow(number: int) -> int:
        from pathlib import Path

        for _ in range(1200):
            Path(folder, str(number)).touch()
            time.sleep(0.05)
        return number

    spark.sparkContext.parallelize(range(2), 2).map(slow).collect()


async def _overhead(queue: AnyQueue, spark: SparkSession) -> list[Row]:
    rows: list[Row] = []
    executors: dict[str, Executor] = {"thread": ThreadExecutor(1), "Spark": SparkExecutor(spark, threads=1)}
    for kind, executor in executors.items():
        async with Worker(queue.name, _nothing, queue.storage, executor=executor, handle_signals=False):
            seconds: list[float] = []
            for _ in range(30):
                began = time.perf_counter()
                await ended(await queue.add("n"))
                seconds.append((time.perf_counter() - began) * 1000)
        rows.append(Row(f"an empty job, {kind} executor", median(seconds), "ms"))
    return rows


def _nothing(_: AnyJob) -> None:
    return None


class _Timed(QueryListener):
    def __init__(self, queue: AnyQueue) -> None:
        super().__init__(queue, on={"progress"})
        self.seconds: list[float] = []
        self.reported = threading.Semaphore(0)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        began = time.perf_counter()
        super().onQueryProgress(event)
        self.seconds.append((time.perf_counter() - began) * 1000)
        self.reported.release()


async def _listening(queue: AnyQueue, spark: SparkSession) -> list[Row]:
    listener = _Timed(queue)
    await asyncio.to_thread(_many_batches, listener, spark)
    await asyncio.to_thread(listener.close)
    await queue.drain()
    return [Row("listener callback, p99 after the first", percentile(listener.seconds[1:], 99), "ms", "<=", 5)]


def _many_batches(listener: _Timed, spark: SparkSession) -> None:
    listener.attach(spark)
    with tempfile.TemporaryDirectory() as folder:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        query = rows.writeStream.format("noop").option("checkpointLocation", folder).start()
        for _ in range(BATCHES):
            listener.reported.acquire(timeout=30)
        query.stop()


MEASURES: Final = (loop_lag, stopping, overhead, listening)
