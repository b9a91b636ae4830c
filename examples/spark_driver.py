"""Spark work as jobs, and jobs from a streaming query, with `Queue` and `Worker` directly.

`foreach_batch` adds plain jobs and no tasks. Needs the extra `spark` and Java 17.

Run it with `python examples/spark_driver.py`.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from glidemq_async import Job, JobFailed, Queue, Worker
from glidemq_async.spark import SparkExecutor, foreach_batch


@contextmanager
def session() -> Generator[SparkSession]:
    """A Spark session on this machine."""
    builder = SparkSession.Builder().master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


def report(spark: SparkSession, job: Job[Any, Any]) -> Any:
    """Run the Spark work of one job."""
    if job.name == "total":
        numbers = spark.createDataFrame([(int(text),) for text in job.data], "number INT")
        return numbers.groupBy().sum("number").collect()[0][0]
    if job.name == "query":
        return spark.sql(job.data).count()
    # It would take a minute.
    sleeping = "reflect('java.lang.Thread', 'sleep', 60000L)"
    # A filter, because Spark does not compute an unused column.
    return spark.range(0, 2, 1, 2).where(f"{sleeping} IS NULL").count()


def batch_jobs(frame: DataFrame, batch_id: int) -> list[tuple[str, Any]]:
    """One job for each micro-batch."""
    return [("total", [row.value for row in frame.collect()])]


def stream(spark: SparkSession, folder: Path, queue: Queue[Any, Any]) -> None:
    """Read the new files of a folder in one batch."""
    each = foreach_batch(queue, batch_jobs, key="numbers")
    rows = spark.readStream.text(str(folder / "in")).writeStream.foreachBatch(each)
    query = rows.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()


async def outcome(queue: Queue[Any, Any], job_id: str) -> str:
    """Wait for the end of a job."""
    job = await queue.get_job(job_id)
    assert job is not None
    try:
        return f"{await job.result(60)}"
    except JobFailed as error:
        await job.refresh()
        return f"{error.error_type}, in {job.fence} run"


async def main(spark: SparkSession, folder: Path) -> None:
    """Add jobs, and wait for their outcomes."""
    (folder / "in").mkdir()
    (folder / "in" / "numbers.txt").write_text("1\n2\n39\n")
    async with Queue[Any, Any]("reports", "memory://") as queue:
        worker = Worker("reports", partial(report, spark), queue.storage, executor=SparkExecutor(spark))
        sleeping = asyncio.Event()

        def begun(job: Job[Any, Any]) -> None:
            if job.name == "sleep":
                sleeping.set()

        worker.on("active", begun)
        async with worker:
            for _ in range(2):  # the second time there is nothing new
                await asyncio.to_thread(stream, spark, folder, queue)
            print("the batch:", await outcome(queue, "numbers:0"))

            wrong = await queue.add("query", "SELECT price FROM no_such_table", attempts=3)
            print("the query:", await outcome(queue, wrong.id))

            slow = await queue.add("sleep")
            await sleeping.wait()
            await slow.revoke()
            print("the sleeper:", await outcome(queue, slow.id))


if __name__ == "__main__":
    with session() as opened, tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(opened, Path(directory)))
