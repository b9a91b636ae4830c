"""The process with Spark: enqueue all files, read what happens to them until all have ended, compute, report.

It may be killed at any time and started again: the same write adds what is missing, the stream goes on at its
checkpoint, and tables are complete or not there. It tells its steps as JSON lines on standard output.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

from glidemq_async.demo.spark.files import ATTEMPTS, BACKOFF_SECONDS, QUEUE, Figures, find_files, job_id, job_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glidemq_async.spark.pipeline import Pipeline

PAUSE_SECONDS: Final = 0.5
CAMPAIGN: Final = "demo-spark"


class Settings(TypedDict):
    """What the process is told, as one JSON line on its standard input."""

    url: str
    folder: str
    files: int


class Result(TypedDict):
    """What it found, as the last line it tells."""

    figures: Figures
    stalls: int
    events: int
    clean: bool
    page: str


def tell(step: str, **more: object) -> None:
    """Tell the parent."""
    sys.stdout.write(json.dumps({"step": step, **more}) + "\n")
    sys.stdout.flush()


def open_session() -> SparkSession:
    """Start Spark as a small, short-lived program needs it."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Compiling well costs more than a program of a minute gets back.
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"
    session = (
        SparkSession.Builder()
        .master("local[2]")
        .appName("glidemq demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", java)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


def enqueue(spark: SparkSession, url: str, most: int) -> None:
    """Add a job for each file; run again, it adds those that are missing."""
    from glidemq_async.spark import enqueue_frame

    files = find_files(most)
    rows = [(job_id(file["path"]), job_name(file["path"]), json.dumps(file)) for file in files]
    frame = spark.createDataFrame(rows, "id string, name string, data string").repartition(4)
    # All are kept, for the count that is shown meanwhile.
    kept = {"keep_completed": True, "keep_failed": True}
    backoff = {"kind": "fixed", "delay": BACKOFF_SECONDS}
    opts: dict[str, Any] = {"attempts": ATTEMPTS, "backoff": backoff, **kept}
    report = enqueue_frame(frame, QUEUE, url=url, txn_app_id=CAMPAIGN, txn_version=1, opts=opts)
    tell("enqueued", jobs=report.inserted + report.duplicate)


def follow(pipeline: Pipeline, url: str, jobs: int) -> None:
    """Read events until every job has ended."""
    events = 0
    while True:
        events += pipeline.ingest(url, [QUEUE])
        ended = _ended(pipeline.lake.events(pipeline.spark))
        tell("ingested", events=events, ended=ended)
        if ended >= jobs:
            return
        time.sleep(PAUSE_SECONDS)


def _ended(events: DataFrame) -> int:
    return events.where("event IN ('completed', 'failed')").select("job_id").distinct().count()


def run(settings: Settings) -> Result:
    """Do it all."""
    tell("starting Spark")
    spark = open_session()
    from glidemq_async.spark.pipeline import Pipeline

    tell("enqueuing")
    enqueue(spark, settings["url"], settings["files"])
    folder = Path(settings["folder"])
    pipeline = Pipeline(spark, folder / "lake")
    follow(pipeline, settings["url"], len(find_files(settings["files"])))
    tell("computing")
    refresh = pipeline.refresh(progress=lambda name, _: tell("computing", table=name))
    tell("drawing")
    figures = pipeline.figures()
    report = pipeline.report(folder / "report", title="Every file of this interpreter, hashed")
    total = figures.total
    return Result(
        figures=Figures(jobs=total.added, completed=total.completed, failed=total.failed, retries=total.retries),
        stalls=total.stalls,
        events=sum(audit.rows for audit in refresh.audits),
        clean=refresh.clean,
        page=str(report.page),
    )


def main() -> None:
    """Read the settings, run, and tell the result."""
    settings: Settings = json.loads(sys.stdin.readline())
    tell("done", **run(settings))


if __name__ == "__main__":
    main()
