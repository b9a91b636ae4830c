"""Registration of the data source with a Spark session, and the active session of a thread."""

from __future__ import annotations

from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from glidemq_async.spark.driver.python_check import check_interpreter
from glidemq_async.spark.source import GlideMQDataSource

CLASSIC: Final = "org.apache.spark.sql.classic.SparkSession"


def register(spark: SparkSession) -> None:
    """Register `format("glidemq")` with a session, and make the session active in this thread.

    This is needed only if Spark does not find the installed package by itself. A second call has no effect. Raises
    ImportError on a local master whose tasks run a Python without this package; the message contains the remedy.
    """
    check_interpreter(spark)
    use_session(spark)
    try:
        spark.dataSource.register(GlideMQDataSource)
    except AnalysisException as error:
        # Spark 4.0 does not replace a source that it has found by itself. It is the same class.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def use_session(spark: SparkSession) -> None:
    """Make the session active in the calling thread. Writes to Python data sources fail in threads without one.

    On Spark Connect this does nothing, because it is not needed.
    """
    java_session = getattr(spark, "_jsparkSession", None)
    if java_session is not None:
        # `createDataFrame` does the same internally. There is a public method for it in Scala only.
        sessions = getattr(spark.sparkContext._jvm, CLASSIC)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        sessions.setActiveSession(java_session)
