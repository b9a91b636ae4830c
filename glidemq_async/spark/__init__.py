"""Spark beside the queue: jobs in bulk from DataFrames, events and jobs as tables, Spark work as jobs.

Needs the extra `spark` (pyspark 4.0 or newer, pyarrow) and a Java 17 for Spark itself. Nothing of Spark is imported
before it is used.
"""

from glidemq_async._internal import lazy
from glidemq_async.spark.requirements import require_pyspark

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__, before=require_pyspark)
