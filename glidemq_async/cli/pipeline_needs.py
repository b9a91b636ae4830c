"""Checks of the commands `glidemq pipeline …` before Spark is started, which takes seconds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from glidemq_async.cli.exits import UNAVAILABLE, USAGE, CommandError

if TYPE_CHECKING:
    from glidemq_async.spark.pipeline.lake import Lake


def need_spark() -> None:
    """Raise CommandError with the packages to install, before pyspark is imported."""
    from glidemq_async.spark.requirements import require_pyspark

    try:
        require_pyspark()
    except ImportError as error:
        raise CommandError(str(error), UNAVAILABLE) from None


def need_java() -> None:
    """Raise CommandError unless Java is installed or Spark runs already."""
    from glidemq_async.spark.requirements import require_java

    # spark-submit starts Python from its own JVM and passes this port. PySpark then connects to that JVM and starts no
    # `java`.
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    try:
        require_java()
    except FileNotFoundError as error:
        raise CommandError(str(error), UNAVAILABLE) from None


def need_queues(queues: list[str], folder: Path, url: str, prefix: str) -> None:
    """Raise CommandError for a missing queue, before a lake is created for it.

    A queue with events in the lake may be missing. The run itself reports its lost events.
    """
    need_spark()
    from glidemq_async.cli import targets
    from glidemq_async.cli.options import CommandTarget

    known = {audit["queue"] for audit in lake_in(folder).current.get("audits", [])}

    async def look() -> None:
        async with targets.open_store(CommandTarget(url, prefix)) as store:
            for name in dict.fromkeys(queues):
                if name not in known:
                    async with store.existing(name):
                        pass

    targets.run(look())


def lake_in(folder: Path) -> Lake:
    """Return the lake of a folder, which need not exist. Raises CommandError for an invalid path."""
    from glidemq_async.spark.pipeline.lake import Lake

    try:
        return Lake(folder)
    except ValueError as error:
        raise CommandError(str(error), USAGE) from None
