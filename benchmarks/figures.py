"""The measured figures by row, metric and round, and their statistics: medians, ranges, and ratios by round."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from .meter import Rows

Rounds: TypeAlias = dict[int, float]


@dataclass(frozen=True, slots=True)
class MedianAndRange:
    """A median and the range of the rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, rounds: Rounds) -> MedianAndRange:
        """Return the spread of some rounds; there must be at least one."""
        values = list(rounds.values())
        return cls(statistics.median(values), min(values), max(values))


class MeasuredRows:
    """All figures of all rounds."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Rounds]] = {}
        self.failures: list[str] = []
        """The samples that failed. Their rows are not measured in these rounds."""

    def add(self, number: int, rows: Rows, suffix: str = "") -> None:
        """Add the rows of one sample."""
        for row, metrics in rows.items():
            kept = self._rows.setdefault(row + suffix, {})
            for metric, value in metrics.items():
                kept.setdefault(metric, {})[number] = value

    @property
    def rows(self) -> list[str]:
        """Return the names of the rows in the order in which they were measured."""
        return list(self._rows)

    def metrics(self, row: str) -> dict[str, MedianAndRange]:
        """Return all metrics of a row."""
        return {metric: MedianAndRange.of(rounds) for metric, rounds in self._rows[row].items()}

    def spread(self, row: str, metric: str) -> MedianAndRange | None:
        """Return one metric of one row, or None if it was not measured."""
        rounds = self._rows.get(row, {}).get(metric)
        return MedianAndRange.of(rounds) if rounds else None

    def at_most(self, row: str, metric: str) -> dict[str, float]:
        """Return the metrics of a row in the round in which this one of them was highest."""
        rounds = self._rows[row][metric]
        number = max(rounds, key=lambda one: rounds[one])
        return {name: values[number] for name, values in self._rows[row].items() if number in values}

    def ratio(self, row: str, to: str, metric: str, to_metric: str | None = None) -> MedianAndRange | None:
        """Divide one row's metric by another row's in each round, so that a slow round slows both sides."""
        above = self._rows.get(row, {}).get(metric, {})
        below = self._rows.get(to, {}).get(to_metric or metric, {})
        shared = {number: above[number] / below[number] for number in above if below.get(number)}
        return MedianAndRange.of(shared) if shared else None

    def to_json(self) -> dict[str, dict[str, list[float]]]:
        """Return all rows, metrics and rounds."""
        return {
            row: {metric: [rounds[number] for number in sorted(rounds)] for metric, rounds in metrics.items()}
            for row, metrics in self._rows.items()
        }


Measure: TypeAlias = Callable[[MeasuredRows], MedianAndRange | None]
