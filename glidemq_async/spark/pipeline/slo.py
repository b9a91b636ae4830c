"""Service level objectives: how fast an error budget burns, on pairs of windows.

The budget is 1 - objective of the jobs that end. A burn rate of 1 uses it up just in time; at 14.4 two per cent of a
month's budget are gone in an hour. An alert needs a long window, so that it means something, and a short one, so that
it ends soon after the cause has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

MINUTE: Final = 60


class Pair(NamedTuple):
    """Two windows in minutes, and the burn rate that both must exceed for an alert."""

    name: str
    short: int
    long: int
    factor: float


PAIRS: Final = (Pair("fast", 5, 60, 14.4), Pair("slow", 30, 360, 6.0))


class Count(NamedTuple):
    """Jobs that ended in a minute, and those of them that count against the budget."""

    total: int
    bad: int


@dataclass(frozen=True)
class Slo:
    """An objective for the jobs of a queue.

    A job is bad when it failed, or, with `latency_ms`, when it took longer than that from added to its end.
    Raises ValueError unless 0 < objective < 1 and latency_ms > 0.
    """

    name: str = "jobs"
    objective: float = 0.99
    latency_ms: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.objective < 1:
            raise ValueError(f"objective must lie between 0 and 1, got {self.objective!r}; 0.99 is 99 %")
        if self.latency_ms is not None and self.latency_ms <= 0:
            raise ValueError(f"latency_ms must be above 0, got {self.latency_ms!r}")

    @property
    def budget(self) -> float:
        """The share of jobs that may be bad."""
        return 1 - self.objective

    def burn(self, counts: Mapping[int, Count], minute: int, length: int) -> float:
        """Return the burn rate of the window of so many minutes that ends with this one; 0 where no job ended."""
        seen = [counts[each] for each in range(minute - length + 1, minute + 1) if each in counts]
        total = sum(count.total for count in seen)
        return sum(count.bad for count in seen) / total / self.budget if total else 0.0

    def alerts(self, counts: Mapping[int, Count], minute: int) -> list[Pair]:
        """Return the pairs whose windows both burn faster than they may."""

        def burns(pair: Pair) -> bool:
            return all(self.burn(counts, minute, length) > pair.factor for length in (pair.short, pair.long))

        return [pair for pair in PAIRS if burns(pair)]
