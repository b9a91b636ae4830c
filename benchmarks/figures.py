"""What was measured, by row, metric and round, and what is made of it: medians, ranges, and ratios round by round."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from .meter import Rows

Rounds: TypeAlias = dict[int, float]


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and how far the rounds lie apart."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, rounds: Rounds) -> Spread:
        """The spread of some rounds; there must be one."""
        values = list(rounds.values())
        return cls(statistics.median(values), min(values), max(values))


class Figures:
    """Every figure of every round."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Rounds]] = {}

    def add(self, number: int, rows: Rows, suffix: str = "") -> None:
        """Take in the rows of one sample."""
        for row, metrics in rows.items():
            kept = self._rows.setdefault(row + suffix, {})
            for metric, value in metrics.items():
                kept.setdefault(metric, {})[number] = value

    @property
    def rows(self) -> list[str]:
        """The names of the rows in the order in which they were measured."""
        return list(self._rows)

    def metrics(self, row: str) -> dict[str, Spread]:
        """All metrics of a row."""
        return {metric: Spread.of(rounds) for metric, rounds in self._rows[row].items()}

    def spread(self, row: str, metric: str) -> Spread | None:
        """One metric of one row, None if it was not measured."""
        rounds = self._rows.get(row, {}).get(metric)
        return Spread.of(rounds) if rounds else None

    def ratio(self, row: str, to: str, metric: str, to_metric: str | None = None) -> Spread | None:
        """One row's metric over another's, compared round by round, so that a slow round slows both."""
        above = self._rows.get(row, {}).get(metric, {})
        below = self._rows.get(to, {}).get(to_metric or metric, {})
        shared = {number: above[number] / below[number] for number in above if below.get(number)}
        return Spread.of(shared) if shared else None

    def to_json(self) -> dict[str, dict[str, list[float]]]:
        """Every row, metric and round."""
        return {
            row: {metric: [rounds[number] for number in sorted(rounds)] for metric, rounds in metrics.items()}
            for row, metrics in self._rows.items()
        }


Measure: TypeAlias = Callable[[Figures], Spread | None]
