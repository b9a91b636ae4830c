"""`python -m benchmarks`: measure, print, and write docs/reports/bench.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from . import readme, report, sizes
from .scenarios import SCENARIOS
from .spark import runner
from .suite import run_suite
from .targets import judge


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the queue.")
    parser.add_argument("--quick", action="store_true", help="run one small round in under 30 s and write no page")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, help="the number of rounds (5; with --quick 1)")
    parser.add_argument(
        "--only",
        metavar="WORD",
        action="append",
        help="run only scenarios whose name contains WORD; 'spark' runs the Spark part",
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
    lacking = runner.why_not()
    if lacking:
        _say(f"!!! the Spark part did NOT run: {lacking}")
        return 2
    small = asked.quick or asked.tiny
    rows = runner.run(5_000 if small else asked.rows, asked.output or (None if small else runner.PAGE), _say)
    return 1 if asked.check and not all(row.met for row in rows) else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(given: Sequence[str] | None = None) -> int:
    """Run the benchmarks; return the exit status."""
    asked = _arguments(given)
    small = asked.quick or asked.tiny
    chosen = sizes.TINY if asked.tiny else sizes.QUICK if asked.quick else sizes.FULL
    rounds = asked.rounds or (1 if small else 5)
    if asked.only == ["spark"]:
        return _spark(asked)
    scenarios = [s for s in SCENARIOS if not asked.only or any(word in s.run for word in asked.only)]
    about = report.surroundings(report.load())
    figures = asyncio.run(run_suite(chosen, rounds, scenarios, _say))
    if asked.json:
        print(json.dumps({"about": about, "figures": figures.to_json()}, indent=1))
    else:
        print(report.terminal(figures))
    output: Path | None = asked.output
    if output is None and not small and not asked.only:
        output = readme.REPORT
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(report.page(figures, rounds, about), encoding="utf-8")
    if output == readme.REPORT:
        readme.main()
    return 1 if asked.check and not all(verdict.met for verdict in judge(figures)) else 0


if __name__ == "__main__":
    sys.exit(main())
