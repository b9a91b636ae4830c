"""Column expressions of several tables. Their results do not depend on the session's time zone."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

from glidemq_async.spark.pipeline.slo import MINUTE

PERCENTS: Final = (50, 95, 99)
"""The percentiles in tables and reports."""


def millis(column: str) -> Column:
    """Return an instant as milliseconds since 1970."""
    return F.unix_millis(F.col(column))


def day(column: str) -> Column:
    """Return the date of an instant in UTC."""
    return F.date_from_unix_date(F.floor(millis(column) / F.lit(86_400_000)).cast("int"))


def start_of(column: str, seconds: int = MINUTE) -> Column:
    """Return the start of the interval of `seconds` seconds that contains an instant."""
    return F.timestamp_seconds(F.floor(millis(column) / F.lit(1000 * seconds)) * F.lit(seconds))


def elapsed_ms(since: str, until: str) -> Column:
    """Return the milliseconds between two instants, at least 0, because the server's clock may be set back."""
    found = millis(until) - millis(since)
    # Not `greatest`, which ignores nulls: an unknown duration would become 0.
    return F.when(found < 0, 0).otherwise(found)


def count_of(condition: Column) -> Column:
    """Return the number of rows of a group that satisfy a condition."""
    return F.count(F.when(condition, True))


def percentile_of(column: str, percent: int) -> Column:
    """Return the exact percentile of a column by nearest rank."""
    return F.expr(f"percentile_disc({percent / 100}) WITHIN GROUP (ORDER BY {column})").cast("bigint")
