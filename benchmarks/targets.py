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


# Rows are compared where a slow machine slows both sides alike; the processor's time does not count who else ran.
def _beside(row: str, to: str, metric: str) -> Measure:
    return lambda figures: figures.ratio(row, to, metric)


def _found(row: str, metric: str) -> Measure:
    return lambda figures: figures.spread(row, metric)


IDLE_TARGETS: Final = (
    *(
        Target(
            f"idle worker, {kind}, p50",
            _beside(f"idle, {kind}: add -> handler", "idle, plain: add -> handler", "p50_us"),
            "<=",
            1.5,
            "x plain",
        )
        for kind in ("prioritized", "LIFO", "keyed")
    ),
    Target(
        "idle worker, just due, p50 after the due instant",
        _beside("delayed: due -> handler", "idle: add -> handler", "p50_us"),
        "<=",
        1.5,
        "x plain",
    ),
)

LIFE_TARGETS: Final = tuple(
    Target(
        f"server time of a whole life, {kind}",
        _beside(f"whole life, {kind}", "whole life", "server_us"),
        "<=",
        1.6,
        "x plain",
    )
    for kind in ("keyed (many keys)", "keyed (few keys)")
)

DEEP_TARGETS: Final = (
    *(
        Target(
            f"{step} of a {kind} job beside 1,000,000 waiting",
            _beside(f"deep, {kind}: {step}", f"shallow, {kind}: {step}", "server_us"),
            "<=",
            1.1,
            "x beside 1,000",
        )
        for kind in ("plain", "keyed")
        for step in ("addJob", "settleAndClaim")
    ),
    *(
        Target(
            f"{change} of one of 1,000,000 waiting jobs, {kind}, p99",
            _found(f"deep, {kind}: {change}", "p99_us"),
            "<=",
            1_000,
            "µs",
        )
        for kind in ("plain", "prioritized", "keyed")
        for change in ("revoke", "change_priority", "remove")
    ),
)

SERVICE_TARGETS: Final = (
    Target(
        "add in the FastAPI example, 200 clients, 1,000 requests/s, p99",
        _found("FastAPI, 200 clients, 1,000/s: add", "p99_us"),
        "<=",
        10_000,
        "µs",
    ),
)

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
        "drain of typed tasks at concurrency 100",
        lambda f: f.ratio("drain, typed tasks", "drain, concurrency 100", "rate"),
        ">=",
        0.75,
        "x the bare worker",
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
    Target(
        "subprocess, a small job there and back, p50",
        _found("subprocess: there and back", "p50_us"),
        "<=",
        1_500,
        "µs",
    ),
    *IDLE_TARGETS,
    *LIFE_TARGETS,
    *DEEP_TARGETS,
    *SERVICE_TARGETS,
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
