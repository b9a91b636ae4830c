"""How Spark comes to know the format."""

from __future__ import annotations

from pyspark.sql import SparkSession

from glidemq_async.spark import GlideMQDataSource, register


def test_the_format_is_known_once_it_is_registered(spark: SparkSession) -> None:
    register(spark)
    register(spark)
    assert GlideMQDataSource.name() == "glidemq"
