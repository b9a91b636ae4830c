"""One session, one server, all rows of the Spark part, as a table and a page."""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from benchmarks import report
from benchmarks.server import running_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Ground", "Row", "run", "why_not"]

PAGE: Final = report.ROOT / "docs" / "reports" / "spark.md"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, and what it should be, if anything."""

    what: str
    value: float
    unit: str
    bound: Literal["<=", ">=", ""] = ""
    target: float = 0.0

    @property
    def met(self) -> bool:
        """Whether the figure keeps its bound."""
        return self.value <= self.target if self.bound == "<=" else self.value >= self.target if self.bound else True

    def cells(self) -> list[str]:
        """The row as texts."""
        target = f"{self.bound} {report.number(self.target)}" if self.bound else ""
        return [self.what, report.number(self.value), self.unit, target, "" if self.met else "missed"]


@dataclass(frozen=True, slots=True)
class Ground:
    """What a measurement works with. `rows` is how many rows a large one takes."""

    spark: SparkSession
    socket: str
    rows: int

    @property
    def url(self) -> str:
        """The storage URL of the server."""
        return f"unix://{self.socket}"


def why_not() -> str:
    """Return why Spark cannot be measured here, "" if it can."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'glidemq-async[spark]'"
    return "" if shutil.which("java") else "there is no java on the PATH: install a JRE, version 17 or newer"


def run(rows: int, page: Path | None, say: Callable[[str], None]) -> list[Row]:
    """Measure everything of Spark, print it, and write the page, if it is named, after each measure."""
    from benchmarks.spark import backfilling, driving, exactness, reading, writing

    about = report.surroundings(report.load())
    found: list[Row] = []
    with running_server() as socket, _session() as spark:
        for measure in (
            *writing.MEASURES,
            *reading.MEASURES,
            *exactness.MEASURES,
            *driving.MEASURES,
            *backfilling.MEASURES,
        ):
            say(f"spark: {measure.__name__}, load {report.load():.1f}")
            try:
                found += measure(Ground(spark, socket, rows))
            except Exception as error:  # noqa: BLE001 - minutes of other figures would be lost with it
                say(traceback.format_exc())
                found.append(Row(f"{measure.__name__} failed: {type(error).__name__}", math.nan, "", ">=", 0))
            if page is not None:  # as far as it has come
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
