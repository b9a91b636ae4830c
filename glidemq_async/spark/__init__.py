"""The Spark integration: write DataFrames as jobs, read queues as tables and streams, run Spark work as jobs.

It needs the extra `spark` (pyspark 4.0 or newer, pyarrow), and Java 17 or newer for Spark itself. Importing this
package does not import pyspark; the first use of one of its names does.
"""

from glidemq_async._internal import lazy
from glidemq_async.spark.requirements import require_pyspark

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__, before=require_pyspark)
