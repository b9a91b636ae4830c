"""Gold: counts and percentiles per queue, name, key and minute, computed from silver.

A minute counts the jobs that were added in it, the attempts that started or ended, and the jobs that ended. Percentiles
of a minute are exact. Percentiles of longer intervals come from `histograms`, whose rows can be summed (see rollup.py),
because an average of percentiles has no meaning.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

from glidemq_async.spark.pipeline.columns import PERCENTS, count_of, percentile_of, start_of
from glidemq_async.spark.pipeline.rollup import HOUR, bucket_of
from glidemq_async.spark.pipeline.silver import JOB, REVOKED
from glidemq_async.spark.pipeline.slo import MINUTE
from glidemq_async.stored.record import FINAL

SERIES: Final = ("queue", "name", "key")
"""The columns that identify a row, together with the minute."""
MEASURES: Final = ("wait_ms", "run_ms", "end_to_end_ms")

_OUTCOMES: Final = {
    "retried": "retrying",
    "returned": "returned",
    "delayed": "delayed",
    "limited": "limited",
    "stalled": "stalled",
}


def minutes(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return one row per queue, name, key and minute: counts, rates between 0 and 1, and exact percentiles.

    `failure_rate` is the share of failed jobs among the ended jobs. `retry_rate` is the share of attempts with a retry
    among the ended attempts. Both are null if nothing ended. Incoming throughput is `added`, outgoing throughput is
    `completed` + `failed`. The number of open jobs grows by `added` and falls by `closed`, which includes removed jobs.
    """
    return interval_counts(attempts, jobs, "minute", MINUTE, SERIES)


def interval_counts(attempts: DataFrame, jobs: DataFrame, start: str, seconds: int, by: Sequence[str]) -> DataFrame:
    """Return the columns of `minutes` for intervals of `seconds` seconds, with their start in the column `start`."""

    def moments(rows: DataFrame, instant: str, *values: str | Column) -> DataFrame:
        timed = rows.where(F.col(instant).isNotNull())
        return timed.select(*by, start_of(instant, seconds).alias(start), *values)

    def one(name: str) -> Column:
        return F.lit(1).alias(name)

    # A union of all moments needs one shuffle. Joins of separate counts would need one shuffle each.
    together = [
        moments(jobs, "added", one("added")),
        moments(attempts, "started", one("started"), "wait_ms"),
        moments(attempts, "finished", "outcome", "run_ms"),
        moments(ended_jobs(jobs), "finished", "state", "dead_letter", "end_to_end_ms"),
        moments(jobs, "closed", one("closed")),
    ]
    counted = (
        reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), together)
        .groupBy(*by, start)
        .agg(
            F.count("added").alias("added"),
            F.count("started").alias("started"),
            *(count_of(F.col("outcome") == outcome).alias(name) for name, outcome in _OUTCOMES.items()),
            F.count("outcome").alias("attempts_ended"),
            count_of(F.col("state") == "completed").alias("completed"),
            count_of(F.col("state") == "failed").alias("failed"),
            F.count("dead_letter").alias("dead_lettered"),
            F.count("closed").alias("closed"),
            *(column for measure in MEASURES for column in percentiles_of(measure)),
        )
    )
    return counted.withColumns(
        {
            "failure_rate": _share(F.col("failed"), F.col("completed") + F.col("failed")),
            "retry_rate": _share(F.col("retried"), F.col("attempts_ended")),
        }
    )


def histograms(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return the number of values in each bucket, per queue, name, key, minute and measure."""
    columns = [*SERIES, "minute", "measure", "value"]
    parts = [
        _values(attempts, "started", "wait_ms"),
        _values(attempts, "finished", "run_ms"),
        _values(ended_jobs(jobs), "finished", "end_to_end_ms"),
    ]
    return (
        reduce(DataFrame.unionByName, (part.select(*columns) for part in parts))
        .withColumn("bucket", bucket_of("value"))
        .groupBy(*SERIES, "minute", "measure", "bucket")
        .agg(F.count("*").alias("n"))
    )


def causes(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return the counts of failures, retries, stalls and dead letters by cause, per queue, name, key and minute.

    `kind` is failed, retried, stalled or dead-lettered. `cause` is the class of the error. For stalls it is the later
    fate of the job: recovered (it ended in another way), failed or open.
    """
    ended = ended_jobs(jobs)
    failed = ended.where("state = 'failed'")
    fate = jobs.select(
        *JOB,
        F.when((F.col("state") == "failed") & (F.col("error_class") == "stalled"), "failed")
        .when(F.col("state").isin(*FINAL, REVOKED), "recovered")
        .otherwise("open")
        .alias("fate"),
    )
    stalled = attempts.where("outcome = 'stalled'").join(fate, [*JOB])
    parts = [
        _with_cause(failed, "failed", F.col("error_class")),
        _with_cause(attempts.where("outcome = 'retrying'"), "retried", F.col("error_class")),
        _with_cause(stalled, "stalled", F.col("fate")),
        _with_cause(failed.where("dead_letter IS NOT NULL"), "dead-lettered", F.col("error_class")),
    ]
    found = reduce(DataFrame.unionByName, parts)
    return found.groupBy(*SERIES, "minute", "kind", "cause").agg(F.count("*").alias("n"))


def retry_heat(attempts: DataFrame) -> DataFrame:
    """Return the number of attempts that needed another attempt, by name, error class, attempt number and hour."""
    return (
        attempts.where("outcome IN ('retrying', 'stalled')")
        .withColumn("hour", start_of("finished", HOUR))
        .groupBy("queue", "name", "error_class", "attempt", "hour")
        .agg(F.count("*").alias("n"))
    )


def ended_jobs(jobs: DataFrame) -> DataFrame:
    """Return the jobs that completed or failed at a known instant, without revoked jobs."""
    return jobs.where(F.col("state").isin(*FINAL) & F.col("finished").isNotNull())


def percentiles_of(measure: str) -> list[Column]:
    """Return the exact percentiles of a measure: `wait_p50` of wait_ms, and so on."""
    return [percentile_of(measure, percent).alias(f"{measure.removesuffix('_ms')}_p{percent}") for percent in PERCENTS]


def _share(part: Column, whole: Column) -> Column:
    # Null and not 0 without ended jobs: a rate of 0 would look like a minute without failures.
    return F.when(whole > 0, part / whole)


def _values(rows: DataFrame, instant: str, measure: str) -> DataFrame:
    # A job whose start or add was trimmed before it was read has no duration.
    known = rows.where(F.col(instant).isNotNull() & F.col(measure).isNotNull())
    return known.select(
        *SERIES, start_of(instant).alias("minute"), F.lit(measure).alias("measure"), F.col(measure).alias("value")
    )


def _with_cause(rows: DataFrame, kind: str, cause: Column) -> DataFrame:
    return rows.select(*SERIES, start_of("finished").alias("minute"), F.lit(kind).alias("kind"), cause.alias("cause"))
