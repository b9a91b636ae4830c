"""The setup that each measurement gets, and the row that it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchmarks.tables import number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Row", "Setup"]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, and its target if it has one."""

    what: str
    value: float
    unit: str
    bound: Literal["<=", ">=", ""] = ""
    target: float = 0.0

    @property
    def met(self) -> bool:
        """True if the figure keeps its bound, or has none."""
        return self.value <= self.target if self.bound == "<=" else self.value >= self.target if self.bound else True

    def cells(self) -> list[str]:
        """Return the row as texts."""
        target = f"{self.bound} {number(self.target)}" if self.bound else ""
        return [self.what, number(self.value), self.unit, target, "" if self.met else "missed"]


@dataclass(frozen=True, slots=True)
class Setup:
    """The session and the server of a measurement. `rows` is the number of rows of a large measurement."""

    spark: SparkSession
    url: str
    rows: int
