"""The Spark session of a thread, and the data source's registration with it."""

from __future__ import annotations

from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from glidemq_async.spark.driver.python_check import check_interpreter
from glidemq_async.spark.source import GlideMQDataSource

CLASSIC: Final = "org.apache.spark.sql.classic.SparkSession"


def register(spark: SparkSession) -> None:
    """Make `format("glidemq")` known to a session, and the session active in this thread.

    Needed where Spark does not find the installed package by itself; registering again does no harm. Raises ImportError
    on a local master whose tasks run a Python that cannot import this package, and says what to set.
    """
    check_interpreter(spark)
    use_session(spark)
    try:
        spark.dataSource.register(GlideMQDataSource)
    except AnalysisException as error:
        # Spark 4.0 refuses to replace what it has found by itself, which is the same.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def use_session(spark: SparkSession) -> None:
    """Make the session active in the calling thread: writes to Python data sources fail in threads without one.

    Spark Connect needs no such thing; nothing happens there.
    """
    java_session = getattr(spark, "_jsparkSession", None)
    if java_session is not None:
        # What `createDataFrame` does on its way; a name of its own exists in Scala only.
        sessions = getattr(spark.sparkContext._jvm, CLASSIC)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        sessions.setActiveSession(java_session)
