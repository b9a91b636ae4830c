"""Percentiles of long intervals, computed from histograms that can be summed over minutes, names and keys.

Below 4,096 ms each value has its own bucket, so percentiles are exact. Above, the width of a bucket is at most 1/2048
of its values. A percentile is the largest value of its bucket, so it is too high by less than 0.05 % and never too low.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

from glidemq_async.spark.pipeline.columns import PERCENTS, start_of

BITS: Final = 12
"""Buckets are exact below 2 ** BITS."""

HOUR: Final = 3600
DAY: Final = 86_400


def bucket_of(column: str) -> Column:
    """Return the bucket of a value, which is the smallest value in it."""
    # The low bits of a value are cut off until 12 are left. The buckets are the same for every series and minute, so
    # histograms can be added, which is not possible with buckets that depend on the data.
    return F.expr(f"shiftleft(shiftright({column}, {_shift(column)}), {_shift(column)})")


def roll_up(histograms: DataFrame, seconds: int, *, by: Sequence[str] = ("queue", "name", "key")) -> DataFrame:
    """Return exact counts, p50, p95 and p99 per interval of `seconds` seconds (HOUR, DAY …), measure and series.

    The columns `by` define a series; with by=() all jobs are one series. Intervals begin at multiples of their length
    since 1970, UTC.
    """
    series = [*by, "start", "measure"]
    buckets = (
        histograms.withColumn("start", start_of("minute", seconds))
        .groupBy(*series, "bucket")
        .agg(F.sum("n").alias("n"))
    )
    # The percentile is the first bucket at which the running count reaches the share. The comparison multiplies
    # integers, because a float share could miss the exact rank by one.
    upwards = Window.partitionBy(*series).orderBy("bucket")
    counted = buckets.withColumn("below", F.sum("n").over(upwards)).withColumn(
        "total", F.sum("n").over(Window.partitionBy(*series))
    )
    largest = F.expr(f"bucket + shiftleft(1L, {_shift('bucket')}) - 1")
    reached = {
        percent: F.min(F.when(F.col("below") * 100 >= F.col("total") * percent, largest)) for percent in PERCENTS
    }
    return counted.groupBy(*series).agg(
        F.max("total").alias("n"), *(value.alias(f"p{percent}") for percent, value in reached.items())
    )


def _shift(column: str) -> str:
    """Return the number of bits of a value beyond an exact bucket, as SQL. A logarithm would not be exact."""
    return f"greatest(length(bin({column})) - {BITS}, 0)"
