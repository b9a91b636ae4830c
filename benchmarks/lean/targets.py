"""The targets of the lean path. All of them compare samples of one run."""

from __future__ import annotations

from typing import Final

from benchmarks import kinds
from benchmarks.call_times import MEASURED
from benchmarks.figures import Measure, MeasuredRows, MedianAndRange
from benchmarks.lean.scenarios import on
from benchmarks.slow_log import LONGEST
from benchmarks.targets import DEPTH_TARGETS, Bound, ratio_of, value_of
from benchmarks.venvs import OWN_VERSION

LOOP: Final = "x the bare loop"
PLAIN: Final = "x plain"
LIMITED: Final = tuple(kind for kind in kinds.LIVES if kind.startswith("keyed with"))
KEYED: Final = tuple(kind for kind in kinds.LIVES if kind.startswith("keyed ("))
OWN: Final = on(OWN_VERSION)


def _drain(what: str, metric: str, bound: str, value: float, suffix: str) -> Bound:
    row, to = f"drain, concurrency 100{suffix}", f"loop, drain{suffix}"
    return Bound(what, ratio_of(row, to, metric), "<=" if bound == "<=" else ">=", value, LOOP)


def _most(prefix: str, metric: str) -> Measure:
    """Return the measure of the highest figure of all rows with the prefix, in place of a median."""

    def measure(figures: MeasuredRows) -> MedianAndRange | None:
        rows = [name for name in figures.rows if name.startswith(prefix)]
        found = [spread.most for name in rows if (spread := figures.spread(name, metric))]
        return MedianAndRange(max(found), min(found), max(found)) if found else None

    return measure


def _worst(row: str, metric: str) -> Measure:
    def measure(figures: MeasuredRows) -> MedianAndRange | None:
        spread = figures.spread(row, metric)
        return spread and MedianAndRange(spread.most, spread.least, spread.most)

    return measure


def _life(kind: str, most: float) -> Bound:
    what = f"server CPU for the whole life of a job, {kind}"
    return Bound(what, ratio_of(f"whole life, {kind}", "whole life", "server_us"), "<=", most, PLAIN)


LEAN_TARGETS: Final = (
    _drain("drain of plain jobs at concurrency 100, Python 3.11", "rate", ">=", 0.9, on("3.11")),
    _drain("drain of plain jobs at concurrency 100, Python 3.13", "rate", ">=", 1.0, on("3.13")),
    _drain("worker CPU per job", "client_us", "<=", 0.9, OWN),
    Bound(
        "server CPU per job, add", ratio_of("add, bulk", f"loop, adds in pipelines{OWN}", "server_us"), "<=", 2.0, LOOP
    ),
    _drain("server CPU per job, drain", "server_us", "<=", 1.8, OWN),
    Bound("rate of add_bulk", ratio_of("add, bulk", f"loop, adds in pipelines{OWN}", "rate"), ">=", 2.0, LOOP),
    Bound(
        "rate of adding with 50 concurrent callers",
        ratio_of("add, 50 callers", "loop, awaited adds", "rate"),
        ">=",
        5.0,
        "x the bare loop's awaited adds",
    ),
    Bound("bytes of a waiting plain job", value_of("add, bulk", "bytes"), "<=", 70, "bytes"),
    *(
        Bound(
            f"start of a job on an idle worker, {metric.removesuffix('_us')}",
            ratio_of("idle: add -> handler", "loop, idle: XADD -> handler", metric),
            "<=",
            most,
            LOOP,
        )
        for metric, most in (("p50_us", 0.8), ("p99_us", 1.2))
    ),
    Bound("request and reply, p50", ratio_of("request/reply", "loop, two hops", "p50_us"), "<=", 1.2, "x two hops"),
    Bound(
        "drain of typed tasks at concurrency 100",
        ratio_of("drain, typed tasks", f"drain, concurrency 100{OWN}", "rate"),
        ">=",
        0.85,
        "x the plain worker",
    ),
    _life("prioritized", 1.5),
    _life("LIFO", 1.5),
    *(_life(kind, 2.5) for kind in KEYED),
    *(_life(kind, 4.0) for kind in LIMITED),
    *DEPTH_TARGETS,
    Bound(
        "add in a FastAPI service with 200 clients and 1,000 requests/s, p99, worst run",
        _worst("FastAPI, 200 clients, 1,000/s: add", "p99_us"),
        "<=",
        10_000,
        "µs",
    ),
    Bound("longest function call", _most(LONGEST, "most_us"), "<=", 5_000, "µs"),
    Bound(
        "processor time of a function call, most of the FastAPI service and of the deep fills",
        _most(MEASURED, "most_processor_us"),
        "<=",
        5_000,
        "µs",
    ),
)
