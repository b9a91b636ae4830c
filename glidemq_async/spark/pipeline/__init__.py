"""The pipeline: tables, figures and reports from the events of queues, stored as Parquet files in a lake.

pipeline.py contains `Pipeline`, which combines the other modules. lake.py defines the folders. bronze.py, silver.py and
gold.py compute one layer of tables each. slo.py and burn_rates.py compute the burn of error budgets, and live.py alerts
on the stream. figures.py, charts.py and report.py create the report. replay.py and backfill.py add jobs to queues.
"""

from __future__ import annotations

from glidemq_async.spark.requirements import require_pyspark

require_pyspark()

from glidemq_async.spark.pipeline.lake import Lake  # noqa: E402 - they import pyspark
from glidemq_async.spark.pipeline.pipeline import Pipeline  # noqa: E402
from glidemq_async.spark.pipeline.slo import Slo  # noqa: E402

__all__ = ["Lake", "Pipeline", "Slo"]
