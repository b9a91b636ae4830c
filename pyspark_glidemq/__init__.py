"""Registration of `format("glidemq")`: Spark finds this package by its name.

Spark imports every module named `pyspark_*` when it looks up a format. A module that fails to import breaks the look-up
of all formats, so this one imports only the data source.
"""

try:
    from glidemq_async.spark.source import GlideMQDataSource as DefaultSource
except ModuleNotFoundError as error:
    # Only a missing pyspark is translated: the look-up does not need pyarrow.
    if (error.name or "").partition(".")[0] != "pyspark":
        raise
    raise ImportError(f"{__name__} needs pyspark: pip install 'glidemq-async[spark]'") from error

__all__ = ["DefaultSource"]
