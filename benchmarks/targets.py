"""What the figures should be, in one table, and the comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from .figures import Figures, Measure, Spread


@dataclass(frozen=True, slots=True)
class Target:
    """A bound for the median of one figure."""

    what: str
    measure: Measure
    bound: Literal["<=", ">="]
    value: float
    unit: str

    def met(self, found: Spread) -> bool:
        """Whether the median keeps the bound."""
        return found.median <= self.value if self.bound == "<=" else found.median >= self.value


TARGETS: Final = (
    Target(
        "server time of a whole life (20 µs where naive takes 28)",
        lambda f: f.ratio("whole life", "naive whole life", "command_us"),
        "<=",
        20 / 28,
        "x naive",
    ),
    Target(
        "client CPU per no-op job at concurrency 100",
        lambda f: f.spread("drain, concurrency 100", "client_us"),
        "<=",
        15,
        "µs",
    ),
    Target(
        "drain at concurrency 100",
        lambda f: f.ratio("drain, concurrency 100", "raw drain", "rate"),
        ">=",
        0.5,
        "x raw",
    ),
    Target(
        "adding with 50 callers",
        lambda f: f.ratio("add, 50 callers", "add, one by one", "rate"),
        ">=",
        5,
        "x one by one",
    ),
    Target(
        "idle worker, add -> handler, p50",
        lambda f: f.spread("idle: add -> handler", "trips"),
        "<=",
        2,
        "round trips",
    ),
    Target(
        "idle worker, add -> handler, p99",
        lambda f: f.spread("idle: add -> handler", "p99_us"),
        "<=",
        10_000,
        "µs",
    ),
    Target(
        "function calls beyond the minimum per job, 200 idle workers",
        lambda f: f.spread("200 idle workers", "extra_calls"),
        "<=",
        3,
        "calls",
    ),
    Target(
        "longest step of draining 1,000,000 jobs",
        lambda f: f.spread("drain in steps", "most_us"),
        "<=",
        10_000,
        "µs",
    ),
    Target(
        "longest step of cleaning 1,000,000 jobs",
        lambda f: f.spread("clean in steps", "most_us"),
        "<=",
        10_000,
        "µs",
    ),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what was found; None: not measured, which is no success."""

    target: Target
    found: Spread | None

    @property
    def met(self) -> bool:
        """Whether it was measured and keeps the bound."""
        return self.found is not None and self.target.met(self.found)


def judge(figures: Figures) -> list[Verdict]:
    """Compare the figures with every target."""
    return [Verdict(target, target.measure(figures)) for target in TARGETS]
