"""`python -m benchmarks`: measure, print, and write docs/reports/bench.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from . import readme, report, sizes, venvs
from .figures import MeasuredRows
from .lean import runner as lean
from .lean.page import with_section
from .scenarios import SCENARIOS
from .spark import runner as spark
from .suite import run_suite
from .targets import judge


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the queue.")
    parser.add_argument("--quick", action="store_true", help="run one small round and write no page")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, help="the number of rounds (5; with --quick 1)")
    parser.add_argument(
        "--only",
        metavar="WORD",
        action="append",
        help="run only scenarios whose name contains WORD; 'lean' and 'spark' run the parts of these names",
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        action="append",
        help="another interpreter with the library and its extra `test`, for the lean part "
        "(`make bench-pythons` builds them)",
    )
    parser.add_argument(
        "--rows", type=int, default=100_000, help="the number of rows that the Spark part writes (100,000)"
    )
    parser.add_argument("--json", action="store_true", help="print every figure of every round as JSON")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a target is missed")
    parser.add_argument("--output", type=Path, help="the page to write (docs/reports/bench.md)")
    return parser.parse_args(given)


def _spark(asked: argparse.Namespace) -> int:
    """Measure the Spark part. It never runs with the others, because it needs Java and minutes to warm up."""
    lacking = spark.why_not()
    if lacking:
        _say(f"!!! the Spark part did NOT run: {lacking}")
        return 2
    small = asked.quick or asked.tiny
    rows = spark.run(5_000 if small else asked.rows, asked.output or (None if small else spark.PAGE), _say)
    return 1 if asked.check and not all(row.met for row in rows) else 0


def _lean(asked: argparse.Namespace, chosen: sizes.Sizes, rounds: int) -> lean.LeanRun | None:
    lacking = lean.lacking()
    if lacking:
        _say(f"!!! the lean part did NOT run: {lacking}")
        return None
    pythons = venvs.interpreters()
    if asked.python:
        pythons = {venvs.OWN_VERSION: sys.executable} | {venvs.version_of(path): path for path in asked.python}
    return lean.measure(chosen, rounds, pythons, _say)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(given: Sequence[str] | None = None) -> int:
    """Run the benchmarks; return the exit status: 1 if a sample failed, or a target is missed with --check."""
    asked = _arguments(given)
    small = asked.quick or asked.tiny
    chosen = sizes.TINY if asked.tiny else sizes.QUICK if asked.quick else sizes.FULL
    rounds = asked.rounds or (1 if small else 5)
    if asked.only == ["spark"]:
        return _spark(asked)
    only_lean = asked.only == ["lean"]
    about = report.surroundings(report.load())
    scenarios = [s for s in SCENARIOS if not asked.only or any(word in s.run for word in asked.only)]
    figures = None if only_lean else asyncio.run(run_suite(chosen, rounds, scenarios, _say))
    lean_run = _lean(asked, chosen, rounds) if only_lean or not asked.only else None
    if only_lean and lean_run is None:
        return 2
    _print(asked, about, figures, lean_run)
    _write(asked, rounds, about, figures, lean_run)
    met = (figures is None or all(verdict.met for verdict in judge(figures))) and (lean_run is None or lean_run.met)
    failed = bool(figures and figures.failures) or bool(lean_run and lean_run.figures.failures)
    return 1 if failed or (asked.check and not met) else 0


def _print(
    asked: argparse.Namespace, about: dict[str, str], figures: MeasuredRows | None, lean_run: lean.LeanRun | None
) -> None:
    if asked.json:
        found: dict[str, object] = {"about": about}
        if figures is not None:
            found["figures"] = figures.to_json()
        if lean_run is not None:
            found["lean"] = {"about": lean_run.about, "figures": lean_run.figures.to_json()}
        print(json.dumps(found, indent=1))
        return
    if figures is not None:
        print(report.terminal(figures))
    if lean_run is not None:
        print("\nThe lean path:\n" + lean_run.terminal())


def _write(
    asked: argparse.Namespace,
    rounds: int,
    about: dict[str, str],
    figures: MeasuredRows | None,
    lean_run: lean.LeanRun | None,
) -> None:
    """Write the page, if it is asked for or the run is complete. A run of the lean part alone renews its section."""
    output: Path | None = asked.output
    if output is None and (asked.quick or asked.tiny or (asked.only and asked.only != ["lean"])):
        return
    output = output or readme.REPORT
    output.parent.mkdir(parents=True, exist_ok=True)
    before = output.read_text(encoding="utf-8") if output.exists() else "# Benchmark\n"
    text = before if figures is None else report.page(figures, rounds, about)
    if lean_run is not None:
        text = with_section(text, lean_run.section())
    output.write_text(text, encoding="utf-8")
    if output == readme.REPORT:
        readme.main()


if __name__ == "__main__":
    sys.exit(main())
