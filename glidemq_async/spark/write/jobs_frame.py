"""Any DataFrame as a frame of jobs."""

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
    id: str | Column | None = None,  # noqa: A002 - the column is called so
    data: Sequence[str] | Column | None = None,
    **options: str | Column,
) -> DataFrame:
    """Return the columns that a write takes, made of those of another frame.

    `name` is the name of all jobs, or a column; `id` and `options` (`priority`, `key`, `delay`, `queue` …) are columns
    or their names. `data` lists the columns that the handler is to get as a dict, all of them without it, or is one
    column. A name with dots is the column that is called so, or, if there is none, a field of a struct. Raises
    ValueError for an option that no job has.
    """
    wrong = sorted(set(options) - set(COLUMNS))
    if wrong:
        raise ValueError(f"no part of a job: {', '.join(wrong)}; there are {', '.join(COLUMNS)}")
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
    """Return the name as Spark takes it for one column's, dots or not."""
    return "`" + column.replace("`", "``") + "`"


def _column(df: DataFrame, given: str | Column) -> Column:
    if not isinstance(given, str):
        return given
    return functions.col(quoted(given) if given in df.columns else given)
