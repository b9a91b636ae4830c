"""Warm-up: the first query of a JVM takes seconds, which would break the time limits of tests."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.spark.driver.work import sleeping


@pytest.fixture(scope="session", autouse=True)
def _warm(spark: SparkSession) -> None:
    sleeping(spark, ms=1).collect()
