"""From a queue's events to figures: bronze, silver and gold tables in a lake of Parquet files, reports, and replays.

run.py is the whole as one object, `Pipeline`. lake.py has the layout; bronze.py, silver.py and gold.py a layer each;
slo.py the burn of error budgets; live.py windows over the stream; figures.py, charts.py and report.py what people look
at; replay.py and backfill.py the way back into the queue.
"""

from __future__ import annotations

from glidemq_async.spark.requirements import require_pyspark

require_pyspark()

from glidemq_async.spark.pipeline.lake import Lake  # noqa: E402 - they import pyspark
from glidemq_async.spark.pipeline.pipeline import Pipeline  # noqa: E402
from glidemq_async.spark.pipeline.slo import Slo  # noqa: E402

__all__ = ["Lake", "Pipeline", "Slo"]
