"""A queue's events as tables, a report, and the failed jobs run again: the pipeline, cell by cell.

Needs the extra `spark` and a Java 17. Written as a notebook: each `# %%` begins a cell.
"""

# %% Spark, a queue in a folder, and a lake next to it
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from glidemq_async import Job, UnrecoverableError, Worker
from glidemq_async.spark import enqueue_frame
from glidemq_async.spark.pipeline import Pipeline, Slo
from glidemq_async.spark.pipeline.replay import Selection, outcomes
from glidemq_async.spark.pipeline.rollup import HOUR, roll_up

# Spark's Python workers must be this interpreter.
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (
    SparkSession.Builder()
    .master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
folder = Path(tempfile.mkdtemp(prefix="glidemq-example-"))
url = (folder / "store").as_uri()

# %% Jobs in bulk: a row each
orders = spark.range(200).select(
    F.concat(F.lit("order-"), "id").alias("id"),
    F.when(F.col("id") % 2 == 0, "invoice").otherwise("ship").alias("name"),
    F.to_json(F.struct("id")).alias("data"),
)
report = enqueue_frame(orders, "orders", url=url, opts={"attempts": 2})
print("enqueued:", report.inserted)

# %% Workers: every 20th order has no address, every 7th needs a second run
addresses: set[int] = set()


async def work(job: Job[dict[str, int], str]) -> str:
    number = job.data["id"]
    if number % 20 == 0 and number not in addresses:
        raise UnrecoverableError("no address")
    if number % 7 == 0 and job.attempts_made == 0:
        raise TimeoutError("try again")
    return "done"


def run_workers() -> None:
    worker = Worker("orders", work, url, concurrency=10, handle_signals=False)
    asyncio.run(worker.run(until_empty=True))


run_workers()

# %% Bronze, silver, gold
pipeline = Pipeline(spark, folder / "lake", slo=Slo("orders", objective=0.9))
pipeline.ingest(url, ["orders"])
refresh = pipeline.refresh()
print("each event once:", refresh.clean)
jobs = pipeline.table("jobs")
for row in jobs.groupBy("name", "state").count().sort("name", "state").collect():
    print(row["name"], row["state"], row["count"])

# %% Percentiles that add up: an hour's from its minutes
hours = roll_up(pipeline.table("histograms"), HOUR, by=["queue"]).where("measure = 'run_ms'").collect()
print("runs:", sum(row["n"] for row in hours), "- p99 known:", all(row["p99"] is not None for row in hours))

# %% A page to look at
page = pipeline.report(folder / "report", title="Orders").page
print("report:", page.name)

# %% The cause is fixed: replay its failures once
addresses.update(range(0, 200, 20))
missing = Selection("orders", error_classes=("UnrecoverableError",))
print("would replay:", pipeline.replay(missing, "addresses", url=url, dry_run=True).found)
attempts = {"opts": {"attempts": 2}}  # a replay is a new job without the old options
pipeline.replay(missing, "addresses", url=url, options=attempts)
pipeline.replay(missing, "addresses", url=url, options=attempts)  # changes nothing
run_workers()
pipeline.ingest(url, ["orders"])
pipeline.refresh()
for row in outcomes(pipeline.table("jobs"), "addresses").groupBy("state").count().collect():
    print("replayed:", row["state"], row["count"])

# %% Spark ends with the session
spark.stop()
