"""What makes `format("glidemq")` known to Spark wherever this package is installed: Spark finds it by its name.

Spark imports every module named `pyspark_*` when it looks for a format, and one that cannot be imported breaks the
look-up of all formats. So nothing beyond the data source is imported here.
"""

from glidemq_async.spark.source import GlideMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
