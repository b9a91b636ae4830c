"""Service level objectives: burn rates of an error budget on pairs of windows.

The budget is the share `1 - objective` of the ended jobs. With a burn rate of 1 the budget is used exactly; with 14.4
an hour uses two percent of a month's budget. An alert needs a long window, so that short peaks do not trigger it, and a
short one, so that it ends soon after its cause.
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


# The usual pairs for a month's budget: 14.4 for an hour uses 2 % of it, and 6 for six hours uses 5 %.
PAIRS: Final = (Pair("fast", 5, 60, 14.4), Pair("slow", 30, 360, 6.0))


class Count(NamedTuple):
    """Number of jobs that ended in a minute, and number of bad ones among them."""

    total: int
    bad: int


@dataclass(frozen=True)
class Slo:
    """An objective for the jobs of a queue.

    A job is bad if it failed or if the time from its add to its end exceeds `latency_ms`. Raises ValueError unless
    0 < objective < 1 and latency_ms > 0.
    """

    name: str = "jobs"
    objective: float = 0.99
    latency_ms: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.objective < 1:
            raise ValueError(f"objective must be between 0 and 1, got {self.objective!r}; for 99 % use 0.99")
        if self.latency_ms is not None and self.latency_ms <= 0:
            raise ValueError(f"latency_ms must be above 0, got {self.latency_ms!r}")

    @property
    def budget(self) -> float:
        """The share of jobs that may be bad."""
        return 1 - self.objective

    def burn(self, counts: Mapping[int, Count], minute: int, length: int) -> float:
        """Return the burn rate of the `length` minutes that end with `minute`, or 0 if no job ended in them."""
        # Minutes without ended jobs have no entry. The rate is the share of bad jobs of the whole window and not an
        # average over minutes, which would give a minute with one job the weight of one with thousands.
        seen = [counts[each] for each in range(minute - length + 1, minute + 1) if each in counts]
        total = sum(count.total for count in seen)
        return sum(count.bad for count in seen) / total / self.budget if total else 0.0

    def alerts(self, counts: Mapping[int, Count], minute: int) -> list[Pair]:
        """Return the pairs whose windows both exceed the burn rate of an alert."""

        def burns(pair: Pair) -> bool:
            return all(self.burn(counts, minute, length) > pair.factor for length in (pair.short, pair.long))

        return [pair for pair in PAIRS if burns(pair)]
