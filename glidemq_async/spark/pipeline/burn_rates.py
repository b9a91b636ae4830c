"""The gold table of burn rates: how fast each queue uses its error budget, per minute."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

from glidemq_async.spark.pipeline.columns import count_of, start_of
from glidemq_async.spark.pipeline.gold import ended_jobs
from glidemq_async.spark.pipeline.slo import MINUTE, PAIRS, Slo


def is_bad(slo: Slo) -> Column:
    """Return the condition for ended jobs that count against the budget."""
    failed = F.col("state") == "failed"
    if slo.latency_ms is None:
        return failed
    return failed | (F.coalesce(F.col("end_to_end_ms"), F.lit(0)) > slo.latency_ms)


def burn_rates(jobs: DataFrame, slo: Slo) -> DataFrame:
    """Return total, bad and the burn rates of all windows, for each minute from a queue's first ended job to its last.

    `fast` and `slow` are true if both windows of the pair exceed the burn rate of an alert.
    """
    ended = ended_jobs(jobs)
    counted = (
        ended.withColumn("minute", start_of("finished"))
        .groupBy("queue", "minute")
        .agg(F.count("*").alias("total"), count_of(is_bad(slo)).alias("bad"))
    )
    filled = _every_minute(counted).withColumn("slo", F.lit(slo.name)).withColumn("objective", F.lit(slo.objective))
    for pair in PAIRS:
        for length in (pair.short, pair.long):
            filled = filled.withColumn(_name(length), _burn_rate(length, slo))
    for pair in PAIRS:
        both = (F.col(_name(pair.short)) > pair.factor) & (F.col(_name(pair.long)) > pair.factor)
        filled = filled.withColumn(pair.name, both)
    return filled


BURN_COLUMNS: Final = tuple(f"burn_{length}m" for pair in PAIRS for length in (pair.short, pair.long))


def _name(length: int) -> str:
    return f"burn_{length}m"


def _every_minute(counted: DataFrame) -> DataFrame:
    """Add the minutes in which no job ended, because an alert may end in one of them."""
    ends = counted.groupBy("queue").agg(F.min("minute").alias("first"), F.max("minute").alias("last"))
    grid = ends.select("queue", F.explode(F.expr("sequence(first, last, INTERVAL 1 MINUTE)")).alias("minute"))
    zero = {name: F.coalesce(F.col(name), F.lit(0)) for name in ("total", "bad")}
    return grid.join(counted, ["queue", "minute"], "left").withColumns(zero)


def _burn_rate(length: int, slo: Slo) -> Column:
    # The window is a range of time and not of rows, and `_every_minute` adds the minutes without jobs.
    seconds = F.unix_seconds("minute")
    window = Window.partitionBy("queue").orderBy(seconds).rangeBetween(-(length - 1) * MINUTE, 0)
    total, bad = F.sum("total").over(window), F.sum("bad").over(window)
    return F.when(total > 0, bad / total / F.lit(slo.budget)).otherwise(F.lit(0.0))
