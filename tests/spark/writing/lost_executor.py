"""A program that writes rows on a cluster of two executors, one of which is killed during the write.

`python -m tests.spark.writing.lost_executor <url>`; prints the report as JSON.
"""

# pyspark's own annotations are incomplete, and pyarrow has none.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from glidemq_async.spark import enqueue_frame

FILL = '"' + "x" * 8000 + '"'


def make(url: str) -> Any:
    """Return the source of the rows. The first attempt of partition 1 kills its executor after it has added some."""

    def rows(source: Iterator[Any]) -> Iterator[Any]:
        import os
        import signal
        import time

        import pyarrow as pa
        from pyspark import TaskContext

        from glidemq_async.spark.connection import connection_to
        from glidemq_async.stored.names import QueueKeys

        context = TaskContext.get()
        assert context is not None
        fatal = context.partitionId() == 1 and context.attemptNumber() == 0
        for number, batch in enumerate(source):
            if fatal and number == 4:
                connection = connection_to(url)
                functions = connection.functions(QueueKeys("glide", "orders"))
                deadline = time.monotonic() + 60
                while not connection.run(functions.reading.get_records(["j100"]))[0] and time.monotonic() < deadline:
                    time.sleep(0.02)
                # This process is a fork of a daemon whose parent is the executor.
                daemon = open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()  # noqa: PTH123, SIM115
                os.kill(int(daemon[1]), signal.SIGKILL)
                time.sleep(60)
            some = batch.column(0).to_pylist()
            ids = [f"j{n}" for n in some]
            yield pa.record_batch([ids, ["n"] * len(ids), [FILL] * len(ids)], names=["id", "name", "data"])

    return rows


def main(url: str) -> None:
    """Write two hundred rows and print the report."""
    home = Path(pyspark.__file__).parent
    os.environ |= {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    spark = (
        SparkSession.Builder()
        .master("local-cluster[2,1,900]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "800m")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    frame = spark.range(0, 200, 1, 2).mapInArrow(make(url), "id string, name string, data string")
    report = enqueue_frame(frame, "orders", url=url, batch_size=10)
    print("REPORT", json.dumps(dataclasses.asdict(report)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
