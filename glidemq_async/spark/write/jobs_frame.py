"""`jobs_frame`: turn any DataFrame into one with the columns of a write."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions

from glidemq_async.spark.write.row_reader import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["jobs_frame", "quoted"]


def jobs_frame(
    df: DataFrame,
    *,
    name: str | Column,
    id: str | Column | None = None,  # noqa: A002 - the name of the column
    data: Sequence[str] | Column | None = None,
    **options: str | Column,
) -> DataFrame:
    """Return a frame with the columns that a write takes, built from the columns of `df`.

    `name` is the name of all jobs, or a column. `id` and `options` (`priority`, `key`, `delay`, `queue` …) are columns
    or names of columns. `data` is a column, or a list of columns that the handler gets as a dict (by default all).
    A name with dots means the column of this name or, if there is none, a field of a struct. Raises ValueError for an
    unknown option.
    """
    wrong = sorted(set(options) - set(COLUMNS))
    if wrong:
        raise ValueError(f"unknown options of a job: {', '.join(wrong)}; the options are {', '.join(COLUMNS)}")
    chosen = [(functions.lit(name) if isinstance(name, str) else name).alias("name")]
    if id is not None:
        chosen.append(_column(df, id).cast("string").alias("id"))
    if data is None or isinstance(data, Sequence):
        names = df.columns if data is None else data
        data = functions.struct(*(_column(df, each) for each in names))
    chosen.append(data.alias("data"))
    chosen += [_column(df, value).alias(option) for option, value in options.items()]
    return df.select(*chosen)


def quoted(column: str) -> str:
    """Return the name in backquotes, so that Spark reads dots in it as part of the name."""
    return "`" + column.replace("`", "``") + "`"


def _column(df: DataFrame, given: str | Column) -> Column:
    if not isinstance(given, str):
        return given
    return functions.col(quoted(given) if given in df.columns else given)
