"""The lake: the folder of the tables, which driver and tasks see under one path, and its current version.

A stream appends to `bronze/events/dt=…`, and its state is in `checkpoints/bronze`. `tables/<version>/…` contain silver
and gold, which each refresh computes again. The JSON file `CURRENT` names the current version. `live/` contains the
state of the live windows.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from glidemq_async.spark.read.schemas import SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENT_SCHEMA: Final = SCHEMAS["events"]
"""The schema of `format("glidemq")` with kind=events."""


# Spark reads a path with these characters as a pattern. It then ignores the sink's log, and with it the list of files
# that belong to bronze.
_PATTERN_CHARACTERS: Final = frozenset("*?[]{}\\")


class Lake:
    """A folder of tables.

    Raises ValueError for a URL with another scheme than `file`, and for a path that Spark would read as a pattern.
    """

    def __init__(self, root: str | Path) -> None:
        text = str(root)
        if "://" in text.removeprefix("file://"):
            raise ValueError(
                f"lake must be a local folder of the driver, got {text!r}; mount the storage, or use file:///…"
            )
        self.root = Path(text.removeprefix("file://")).absolute()
        odd = _PATTERN_CHARACTERS.intersection(str(self.root))
        if odd:
            raise ValueError(
                f"lake must not contain {' '.join(sorted(odd))}, which Spark reads as a pattern, got {text!r}; rename "
                "it"
            )

    @property
    def bronze(self) -> Path:
        """The folder of the events."""
        return self.root / "bronze" / "events"

    def checkpoint(self, name: str) -> Path:
        """Return the folder of a stream's checkpoint."""
        return self.root / "checkpoints" / name

    @property
    def current(self) -> dict[str, Any]:
        """The notes of the last complete refresh, or {} before the first one."""
        try:
            found: dict[str, Any] = json.loads(self._pointer.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return found

    def events(self, spark: SparkSession) -> DataFrame:
        """Return the rows of bronze, or no rows before the first ingestion."""
        if not any(self.bronze.glob("dt=*")):
            return spark.createDataFrame([], f"{EVENT_SCHEMA}, dt date")
        # Spark reads the list of files from the sink's log. Other engines would also read files of interrupted batches.
        return spark.read.schema(f"{EVENT_SCHEMA}, dt date").parquet(uri(self.bronze))

    def table(self, spark: SparkSession, name: str) -> DataFrame:
        """Return a table of the current version. Raises LookupError before the first refresh."""
        version = self.current.get("version")
        if version is None:
            raise LookupError(f"{self.root} has no table {name!r} yet; run `glidemq pipeline run` for it first")
        return spark.read.parquet(uri(self.folder(version) / name))

    def folder(self, version: str) -> Path:
        """Return the folder of a version's tables."""
        return self.root / "tables" / version

    def begin(self) -> str:
        """Return the name of the next version, and remove the files that an interrupted refresh left there."""
        current = self.current.get("version")
        last = int(current) if current is not None else 0
        version = f"{last + 1:06d}"
        shutil.rmtree(self.folder(version), ignore_errors=True)
        return version

    def publish(self, version: str, notes: dict[str, Any]) -> None:
        """Make a complete version the current one. The version before it stays, for its current readers."""
        # Readers choose a version by this one file, and a rename replaces it atomically. A crash before the rename
        # leaves the old version current; the next `begin` removes the new one. The fsync comes first, because after a
        # power failure some file systems keep the rename and lose the contents.
        self.root.mkdir(parents=True, exist_ok=True)
        fresh = self._pointer.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump({**notes, "version": version}, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._pointer)
        for folder in (self.root / "tables").iterdir():
            if folder.name.isdigit() and int(folder.name) < int(version) - 1:
                shutil.rmtree(folder, ignore_errors=True)

    @property
    def _pointer(self) -> Path:
        return self.root / "CURRENT"


def uri(path: Path) -> str:
    """Return the URI of a local path for Spark, whatever its default file system is.

    Spark expects no percent encoding.
    """
    return f"file://{path.as_posix()}"


def escaped(path: Path) -> str:
    """Return the URI of an existing path that is only read, with the characters of patterns escaped."""
    return uri(Path("".join(f"\\{each}" if each in _PATTERN_CHARACTERS else each for each in str(path))))
