"""Where the tables lie, in a folder that driver and tasks see under one path, and which version is the present one.

`bronze/events/dt=…` is appended by the stream, whose state is in `checkpoints/bronze`; `tables/<version>/…` are silver
and gold, computed anew by each refresh; `CURRENT` (JSON) names the version that is read; `live/` is state of windows.
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
"""A row of `format("glidemq")` with kind=events."""


#: What Spark takes for a pattern. It would not follow the log of the files that belong to bronze.
_OF_PATTERNS: Final = frozenset("*?[]{}\\")


class Lake:
    """A folder of tables.

    Raises ValueError for a path that is a URL of another kind than `file`, or that Spark takes for a pattern.
    """

    def __init__(self, root: str | Path) -> None:
        text = str(root)
        if "://" in text.removeprefix("file://"):
            raise ValueError(f"lake must be a folder that the driver can see, got {text!r}; mount it, or use file:///…")
        self.root = Path(text.removeprefix("file://")).absolute()
        odd = _OF_PATTERNS.intersection(str(self.root))
        if odd:
            raise ValueError(f"lake must be no pattern, which Spark takes {' '.join(sorted(odd))} for, got {text!r}")

    @property
    def bronze(self) -> Path:
        """Where the events are."""
        return self.root / "bronze" / "events"

    def checkpoint(self, name: str) -> Path:
        """Where a stream keeps how far it has got."""
        return self.root / "checkpoints" / name

    @property
    def current(self) -> dict[str, Any]:
        """What the last complete refresh noted; {} before the first."""
        try:
            found: dict[str, Any] = json.loads(self._pointer.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return found

    def events(self, spark: SparkSession) -> DataFrame:
        """Return the rows of bronze; none before anything was ingested."""
        if not any(self.bronze.glob("dt=*")):
            return spark.createDataFrame([], f"{EVENT_SCHEMA}, dt date")
        # Read by Spark, which follows the sink's log: other engines would see files of batches that were cut off.
        return spark.read.schema(f"{EVENT_SCHEMA}, dt date").parquet(uri(self.bronze))

    def table(self, spark: SparkSession, name: str) -> DataFrame:
        """Return a table of the present version. Raises LookupError before the first refresh."""
        version = self.current.get("version")
        if version is None:
            raise LookupError(f"{self.root} has no table {name!r} yet: run `glidemq pipeline run` on it first")
        return spark.read.parquet(uri(self.folder(version) / name))

    def folder(self, version: str) -> Path:
        """Where the tables of a version are."""
        return self.root / "tables" / version

    def begin(self) -> str:
        """Return the name of the next version, and remove what an earlier refresh left that did not come to its end."""
        current = self.current.get("version")
        last = int(current) if current is not None else 0
        version = f"{last + 1:06d}"
        shutil.rmtree(self.folder(version), ignore_errors=True)
        return version

    def publish(self, version: str, notes: dict[str, Any]) -> None:
        """Make a complete version the present one; the one before stays for those who read it just now."""
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
    """Return a path as Spark is to take it, wherever its default file system is: as it is, without percent signs."""
    return f"file://{path.as_posix()}"


def escaped(path: Path) -> str:
    """Return the URI of what is there already and is only read: such a path may hold what patterns are made of."""
    return uri(Path("".join(f"\\{each}" if each in _OF_PATTERNS else each for each in str(path))))
