"""The targets for the figures in one table, and the comparison with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from .figures import Measure, MeasuredRows, MedianAndRange
from .shapes import CHANGES, COMPARED, SHAPES, STEPS, job_of


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound for the median of one figure."""

    what: str
    measure: Measure
    bound: Literal["<=", ">="]
    value: float
    unit: str

    def met(self, found: MedianAndRange) -> bool:
        """Return whether the median is within the bound."""
        return found.median <= self.value if self.bound == "<=" else found.median >= self.value


# Ratios of two rows, because a slow machine slows both sides. Processor times do not depend on other processes.
def ratio_of(row: str, to: str, metric: str) -> Measure:
    """Return the measure of one row as a share of another row."""
    return lambda figures: figures.ratio(row, to, metric)


def value_of(row: str, metric: str) -> Measure:
    """Return the measure of one figure."""
    return lambda figures: figures.spread(row, metric)


IDLE_TARGETS: Final = (
    *(
        Bound(
            f"start of a {kind} job on an idle worker, p50",
            ratio_of(f"idle, {kind}: add -> handler", "idle, plain: add -> handler", "p50_us"),
            "<=",
            1.5,
            "x plain",
        )
        for kind in ("prioritized", "LIFO", "keyed")
    ),
    Bound(
        "start of a delayed job on an idle worker, p50 after its due time",
        ratio_of("delayed: due -> handler", "idle: add -> handler", "p50_us"),
        "<=",
        1.5,
        "x plain",
    ),
)

LIFE_TARGETS: Final = tuple(
    Bound(
        f"server CPU for the whole life of a job, {kind}",
        ratio_of(f"whole life, {kind}", "whole life", "server_us"),
        "<=",
        1.6,
        "x plain",
    )
    for kind in ("keyed (many keys)", "keyed (few keys)")
)

DEPTH_TARGETS: Final = tuple(
    Bound(
        f"{step} of a {job_of(name)} while 1,000,000 wait",
        ratio_of(f"deep, {name}: {step}", f"shallow, {name}: {step}", "server_us"),
        "<=",
        1.1,
        f"x the cost while {SHAPES[name].few:,} wait",
    )
    for name in COMPARED
    for step in STEPS
)
"""Both queues of a ratio have the same kind of jobs, and the same number of jobs for each key."""

DEEP_TARGETS: Final = (
    *DEPTH_TARGETS,
    *(
        Bound(
            f"{change} of one of 1,000,000 waiting jobs, {name}, p99",
            value_of(f"deep, {name}: {change}", "p99_us"),
            "<=",
            1_000,
            "µs",
        )
        for name in SHAPES
        for change in CHANGES
    ),
)

SERVICE_TARGETS: Final = (
    Bound(
        "add in a FastAPI service with 200 clients and 1,000 requests/s, p99",
        value_of("FastAPI, 200 clients, 1,000/s: add", "p99_us"),
        "<=",
        10_000,
        "µs",
    ),
)

TARGETS: Final = (
    Bound(
        "server time in commands for the whole life of a job",
        lambda f: f.ratio("whole life", "naive whole life", "command_us"),
        "<=",
        20 / 28,  # 20 µs on the machine where naive takes 28
        "x naive",
    ),
    Bound(
        "worker CPU per no-op job at concurrency 100",
        lambda f: f.spread("drain, concurrency 100", "client_us"),
        "<=",
        15,
        "µs",
    ),
    Bound(
        "rate of draining at concurrency 100",
        lambda f: f.ratio("drain, concurrency 100", "raw drain", "rate"),
        ">=",
        0.5,
        "x raw",
    ),
    Bound(
        "rate of draining typed tasks at concurrency 100",
        lambda f: f.ratio("drain, typed tasks", "drain, concurrency 100", "rate"),
        ">=",
        0.75,
        "x the bare worker",
    ),
    Bound(
        "rate of adding with 50 concurrent callers",
        lambda f: f.ratio("add, 50 callers", "add, one by one", "rate"),
        ">=",
        5,
        "x one by one",
    ),
    Bound(
        "start of a job on an idle worker, p50",
        lambda f: f.spread("idle: add -> handler", "trips"),
        "<=",
        2,
        "round trips",
    ),
    Bound(
        "start of a job on an idle worker, p99",
        lambda f: f.spread("idle: add -> handler", "p99_us"),
        "<=",
        10_000,
        "µs",
    ),
    Bound(
        "additional function calls per job with 200 idle workers",
        lambda f: f.spread("200 idle workers", "extra_calls"),
        "<=",
        3,
        "calls",
    ),
    Bound(
        "longest step when draining 1,000,000 jobs",
        lambda f: f.spread("drain in steps", "most_us"),
        "<=",
        10_000,
        "µs",
    ),
    Bound(
        "longest step when cleaning 1,000,000 jobs",
        lambda f: f.spread("clean in steps", "most_us"),
        "<=",
        10_000,
        "µs",
    ),
    Bound(
        "round trip of a small job to a subprocess, p50",
        value_of("subprocess: there and back", "p50_us"),
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
class BoundCheck:
    """A target and its figure. None means not measured, which is not a success."""

    target: Bound
    found: MedianAndRange | None

    @property
    def met(self) -> bool:
        """Return whether it was measured and is within the bound."""
        return self.found is not None and self.target.met(self.found)


def judge(figures: MeasuredRows, targets: Sequence[Bound] = TARGETS) -> list[BoundCheck]:
    """Compare the figures with every target."""
    return [BoundCheck(target, target.measure(figures)) for target in targets]
