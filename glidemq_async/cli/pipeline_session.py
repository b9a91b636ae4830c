"""The Spark session and the pipeline that the commands of `glidemq pipeline` work with."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from glidemq_async.cli.exits import NOT_FOUND, UNAVAILABLE, USAGE, CommandError
from glidemq_async.cli.pipeline_needs import lake_in, need_java, need_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from glidemq_async.spark.pipeline import Pipeline
    from glidemq_async.spark.pipeline.slo import Slo


@contextmanager
def open_session(master: str) -> Generator[SparkSession]:
    """Start Spark for the block, and turn its errors into errors of the command."""
    need_spark()
    from pyspark.errors import PySparkException

    session = _start_spark(master)
    # Spark prints warnings to standard error, where they would hide the hints and errors of the command.
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    except PySparkException as error:
        raise CommandError(str(error).partition("\nJVM stacktrace")[0]) from error
    except ValueError as error:  # the library refuses an option or argument
        raise CommandError(str(error), USAGE) from error
    finally:
        session.stop()


def _start_spark(master: str) -> SparkSession:
    need_java()
    from pyspark.errors import PySparkException

    try:
        return _builder(master).getOrCreate()
    except PySparkException as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise CommandError("Java ended when Spark started it; install version 17 or newer", UNAVAILABLE) from error


def _builder(master: str) -> SparkSession.Builder:
    from pyspark.sql import SparkSession

    # Otherwise Spark starts the first `python3` on the path for its tasks, which may be another version or lack this
    # package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.Builder().appName("glidemq pipeline").config("spark.ui.showConsoleProgress", "false")
    # With $MASTER or under spark-submit the cluster is chosen already. A master that is set here would override it.
    if "MASTER" not in os.environ and "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master(master)
    return builder


@contextmanager
def open_pipeline(folder: Path, master: str, slo: Slo | None = None, *, made: bool = False) -> Generator[Pipeline]:
    """Start Spark with a lake for the block. With `made` the lake must have tables."""
    need_spark()
    lake = lake_in(folder)
    if made and not lake.current:
        raise CommandError(f"{lake.root} has no tables yet; run `glidemq pipeline run` for it first", NOT_FOUND)
    with open_session(master) as session:
        from glidemq_async.spark.pipeline import Pipeline

        try:
            yield Pipeline(session, lake, slo=slo)
        except LookupError as error:
            raise CommandError(str(error.args[0]), NOT_FOUND) from error
