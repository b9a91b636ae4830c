"""The process with Spark. It adds a job for each file, reads events until all jobs have ended, and writes the report.

It can be killed at any time and started again. The same write adds the missing jobs, the stream resumes at its
checkpoint, and a table is either complete or missing. The process reports its steps as JSON lines on standard output.
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
    """The settings of the process, which arrive as one JSON line on standard input."""

    url: str
    folder: str
    files: int


class Result(TypedDict):
    """The result, which is the last reported line."""

    figures: Figures
    stalls: int
    events: int
    clean: bool
    page: str


def report_step(step: str, **more: object) -> None:
    """Report a step to the parent process."""
    sys.stdout.write(json.dumps({"step": step, **more}) + "\n")
    sys.stdout.flush()


def open_session() -> SparkSession:
    """Start Spark with settings for a small program that runs for a minute."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # A program of a minute gains less from optimized code than the optimization costs.
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
    """Add a job for each file. A repeated call adds only the missing jobs."""
    from glidemq_async.spark import enqueue_frame

    files = find_files(most)
    rows = [(job_id(file["path"]), job_name(file["path"]), json.dumps(file)) for file in files]
    frame = spark.createDataFrame(rows, "id string, name string, data string").repartition(4)
    # All ended jobs are kept, because the display counts them.
    kept = {"keep_completed": True, "keep_failed": True}
    backoff = {"kind": "fixed", "delay": BACKOFF_SECONDS}
    opts: dict[str, Any] = {"attempts": ATTEMPTS, "backoff": backoff, **kept}
    report = enqueue_frame(frame, QUEUE, url=url, txn_app_id=CAMPAIGN, txn_version=1, opts=opts)
    report_step("enqueued", jobs=report.inserted + report.duplicate)


def follow(pipeline: Pipeline, url: str, jobs: int) -> None:
    """Read events until every job has ended."""
    events = 0
    while True:
        events += pipeline.ingest(url, [QUEUE])
        ended = _ended(pipeline.lake.events(pipeline.spark))
        report_step("ingested", events=events, ended=ended)
        if ended >= jobs:
            return
        time.sleep(PAUSE_SECONDS)


def _ended(events: DataFrame) -> int:
    return events.where("event IN ('completed', 'failed')").select("job_id").distinct().count()


def run(settings: Settings) -> Result:
    """Run all steps and return the result."""
    report_step("starting Spark")
    spark = open_session()
    from glidemq_async.spark.pipeline import Pipeline

    report_step("enqueuing")
    enqueue(spark, settings["url"], settings["files"])
    folder = Path(settings["folder"])
    pipeline = Pipeline(spark, folder / "lake")
    follow(pipeline, settings["url"], len(find_files(settings["files"])))
    report_step("computing")
    refresh = pipeline.refresh(progress=lambda name, _: report_step("computing", table=name))
    report_step("drawing")
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
    """Read the settings, run all steps, and report the result."""
    settings: Settings = json.loads(sys.stdin.readline())
    report_step("done", **run(settings))


if __name__ == "__main__":
    main()
