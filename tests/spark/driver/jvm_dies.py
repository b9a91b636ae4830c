"""A program whose JVM is killed during a job. It prints the end of the worker and the state of the job."""

# py4j has no annotations, and the annotations of pyspark are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from glidemq_async import Job, Queue, Worker
from glidemq_async.errors import ExecutorError
from glidemq_async.spark import SparkExecutor


def work(spark: SparkSession, job: Job[Any, Any]) -> None:
    """Kill the JVM, then call it."""
    gateway: Any = spark.sparkContext._gateway
    os.kill(gateway.proc.pid, signal.SIGKILL)
    gateway.proc.wait()
    spark.range(3).count()


async def main(spark: SparkSession) -> None:
    """Run a job with two attempts in a worker that cannot run the second one."""
    async with Queue[Any, Any]("q", "memory://") as queue:
        job = await queue.add("n", attempts=2)
        worker = Worker("q", partial(work, spark), queue.storage, executor=SparkExecutor(spark), handle_signals=False)
        try:
            await worker.run()
        except ExecutorError as error:
            print("the worker stopped:", str(error).partition(":")[0])
        print(await job.get_state(), job.attempts_made)
        print(job.failed_reason)


if __name__ == "__main__":
    builder = SparkSession.Builder().master("local[1]").config("spark.ui.enabled", "false")
    asyncio.run(main(builder.config("spark.driver.host", "127.0.0.1").getOrCreate()))
