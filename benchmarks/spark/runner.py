"""Run all measurements of the Spark part with one session and one server, and print them as a table and a page."""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import report
from benchmarks.server import running_server
from benchmarks.spark.setup import Row, Setup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run", "why_not"]

PAGE: Final = report.ROOT / "docs" / "reports" / "spark.md"


def why_not() -> str:
    """Return the reason why Spark cannot be measured here, or "" if it can."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'glidemq-async[spark]'"
    return "" if shutil.which("java") else "there is no java on the PATH: install a JRE, version 17 or newer"


def run(rows: int, page: Path | None, say: Callable[[str], None]) -> list[Row]:
    """Run all measurements and print them. Write the page, if there is one, after each measurement."""
    from benchmarks.spark import bulk_writes, driver_work, event_reads, exactness, metered_backfill

    about = report.surroundings(report.load())
    found: list[Row] = []
    with running_server() as url, _session() as spark:
        for measure in (
            *bulk_writes.MEASURES,
            *event_reads.MEASURES,
            *exactness.MEASURES,
            *driver_work.MEASURES,
            *metered_backfill.MEASURES,
        ):
            say(f"spark: {measure.__name__}, load {report.load():.1f}")
            try:
                found += measure(Setup(spark, url, rows))
            except Exception as error:  # noqa: BLE001 - the figures of the others took minutes
                say(traceback.format_exc())
                found.append(Row(f"{measure.__name__} failed: {type(error).__name__}", math.nan, "", ">=", 0))
            if page is not None:  # the figures so far, in case a later measurement hangs
                page.parent.mkdir(parents=True, exist_ok=True)
                after = {"load afterwards": f"{report.load():.1f}", "pace afterwards": report.pace()}
                page.write_text(_page(_table(found), rows, about | after), encoding="utf-8")
    print(_plain(_table(found)))
    return found


def _table(found: Sequence[Row]) -> list[list[str]]:
    return [["what", "found", "unit", "target", ""], *(row.cells() for row in found)]


@contextmanager
def _session() -> Generator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        session = (
            SparkSession.Builder()
            .master("local[2,4]")
            .appName("glidemq benchmarks")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.local.dir", folder)
            .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()


def _plain(table: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table)


def _page(table: Sequence[Sequence[str]], rows: int, about: Mapping[str, str]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in table]
    lines.insert(1, "|" + "---|" * len(table[0]))
    return "\n".join(
        [
            "# Spark, measured",
            "",
            f"Written by `make bench-spark`: {rows:,} rows of about 170 bytes, two tasks at a time, warm.",
            "",
            *(f"- {name}: {value}" for name, value in about.items()),
            "",
            *lines,
            "",
        ]
    )
