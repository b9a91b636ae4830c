"""Which engine steers a session: that of Classic or that of Spark Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidemq_async.spark.driver.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def engine_of(spark: SparkSession, *, interrupt: bool) -> Engine:
    """Return the engine of a session; `interrupt`: see SparkExecutor. Raises TypeError for anything else."""
    if hasattr(spark, "_jsparkSession"):
        from glidemq_async.spark.driver.classic import ClassicEngine

        return ClassicEngine(spark, interrupt=interrupt)
    if hasattr(spark, "interruptTag") and hasattr(spark, "client"):
        from glidemq_async.spark.driver.connect import ConnectEngine

        return ConnectEngine(spark)
    raise TypeError(f"a Spark session is needed, got {spark!r}: pass what SparkSession.builder.getOrCreate() returned")
