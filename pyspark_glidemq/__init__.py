"""What makes `format("glidemq")` known to Spark wherever this package is installed: Spark finds it by its name.

Spark imports every module named `pyspark_*` when it looks for a format, and one that cannot be imported breaks the
look-up of all formats. So nothing beyond the data source is imported here.
"""

try:
    from glidemq_async.spark.source import GlideMQDataSource as DefaultSource
except ModuleNotFoundError as error:
    # Of pyspark alone: pyarrow is not needed to be looked up.
    if (error.name or "").partition(".")[0] != "pyspark":
        raise
    raise ImportError(f"{__name__} needs pyspark: pip install 'glidemq-async[spark]'") from error

__all__ = ["DefaultSource"]
