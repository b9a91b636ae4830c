"""What the commands `glidemq pipeline …` need, looked at before Spark is started, which takes seconds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from glidemq_async.cli.exits import UNAVAILABLE, USAGE, CommandError

if TYPE_CHECKING:
    from glidemq_async.spark.pipeline.lake import Lake


def need_spark() -> None:
    """Raise CommandError that names what to install, before anything of Spark is imported."""
    from glidemq_async.spark.requirements import require_pyspark

    try:
        require_pyspark()
    except ImportError as error:
        raise CommandError(str(error), UNAVAILABLE) from None


def need_java() -> None:
    """Raise CommandError unless Spark can be started here, or runs already."""
    from glidemq_async.spark.requirements import require_java

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    try:
        require_java()
    except FileNotFoundError as error:
        raise CommandError(str(error), UNAVAILABLE) from None


def need_queues(queues: list[str], folder: Path, url: str, prefix: str) -> None:
    """Raise CommandError for a queue that is not there, before a lake is made for it.

    One that the lake knows may have gone: what is to be done about its events is not decided here.
    """
    need_spark()
    from glidemq_async.cli import targets
    from glidemq_async.cli.options import Place

    known = {audit["queue"] for audit in lake_in(folder).current.get("audits", [])}

    async def look() -> None:
        async with targets.open_store(Place(url, prefix)) as store:
            for name in dict.fromkeys(queues):
                if name not in known:
                    async with store.existing(name):
                        pass

    targets.run(look())


def lake_in(folder: Path) -> Lake:
    """Return the lake of a folder, which need not be there. Raises CommandError for what cannot be one."""
    from glidemq_async.spark.pipeline.lake import Lake

    try:
        return Lake(folder)
    except ValueError as error:
        raise CommandError(str(error), USAGE) from None
