"""The figures of a demonstration as text and tables, and as JSON."""

from __future__ import annotations

import heapq
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from glidemq_async.cli.demo.audit import Figures
from glidemq_async.cli.demo.measure import Measure
from glidemq_async.cli.demo.show import Outcome

TOP: Final = 10
SHOWN_PROBLEMS: Final = 5
PLAIN_WIDTH: Final = 130
_NAME_WIDTH: Final = 20
_SUMS: Final = ("size", "lines", "functions", "classes", "imports", "complexity")


def top(results: list[Measure], size_of: Callable[[Measure], int]) -> list[Measure]:
    """Return the ten largest results by some measure, the largest first."""
    return heapq.nlargest(TOP, results, key=size_of)


def totals(results: list[Measure]) -> dict[str, int]:
    """Return the sums over all files, and how many did not parse or could not be read."""
    sums = {name: sum(int(result[name]) for result in results) for name in _SUMS}
    for status in ("measured", "unparsable", "unreadable"):
        sums[status] = sum(result["status"] == status for result in results)
    return sums


def as_json(outcome: Outcome, root: Path) -> dict[str, object]:
    """Return everything that is worth keeping, in types that JSON has; durations in seconds."""
    found = outcome.figures
    return {
        "root": str(root),
        "python": platform.python_version(),
        "jobs": found.jobs,
        "completed": found.completed,
        "failed": found.failed,
        "seconds": round(found.seconds, 3),
        "jobs_per_second": round(found.rate, 1),
        "latency": {"p50": round(found.latency.p50, 3), "p99": round(found.latency.p99, 3)},
        "run": {"p50": round(found.run.p50, 3), "p99": round(found.run.p99, 3)},
        "retries": found.retries,
        "stalls": found.stalls,
        "recovered": found.recovered,
        "lost": found.lost,
        "duplicates": found.duplicates,
        "strangers": found.strangers,
        "events_missed": found.events_missed,
        "check": [finding._asdict() for finding in found.findings],
        "clean": found.clean,
        "processes": outcome.processes,
        "totals": totals(found.results),
        "most_complex": top(found.results, lambda result: result["complexity"]),
        "biggest": top(found.results, lambda result: result["lines"]),
    }


def print_report(console: Console, outcome: Outcome, root: Path) -> None:
    """Print the table of results, what did not parse, and the figures."""
    figures = outcome.figures
    console.print()
    console.print(_table(figures, root))
    _print_problems(console, figures.results)
    console.print()
    console.print(_summary(figures), soft_wrap=True)
    for finding in figures.findings:
        console.print(f"  [red]broken[/]: {finding.invariant} {escape(finding.subject)} {escape(finding.message)}")
    if figures.events_missed:
        console.print(f"  {figures.events_missed:,} events were trimmed unread: not all endings could be counted")


def _table(figures: Figures, root: Path) -> Table:
    sums = totals(figures.results)
    table = Table(
        title=f"The {TOP} most complex of {len(figures.results):,} files in {escape(str(root))}",
        show_footer=True,
    )
    table.add_column("file", f"all {sums['measured']:,} that parse", overflow="fold", min_width=24)
    for name in ("lines", "functions", "classes", "imports", "complexity"):
        table.add_column(name, f"{sums[name]:,}", justify="right")
    table.add_column("nesting", f"{_largest(figures, lambda result: result['nesting'])}", justify="right")
    table.add_column(
        "longest function",
        f"{_largest(figures, lambda result: result['longest']):,}",
        justify="right",
        no_wrap=True,
        max_width=28,
    )
    for result in top(figures.results, lambda result: result["complexity"]):
        table.add_row(
            escape(result["file"]),
            *(f"{int(result[name]):,}" for name in ("lines", "functions", "classes", "imports", "complexity")),
            str(result["nesting"]),
            f"{escape(_shortened(result['longest_name']))} {result['longest']:,}",
        )
    return table


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…"


def _largest(figures: Figures, size_of: Callable[[Measure], int]) -> int:
    return max(map(size_of, figures.results), default=0)


def _print_problems(console: Console, results: list[Measure]) -> None:
    odd = [result for result in results if result["status"] != "measured"]
    if not odd:
        return
    console.print(f"{len(odd)} files hold no Python that this interpreter can parse, which is a result too:")
    for result in odd[:SHOWN_PROBLEMS]:
        console.print(f"  {escape(result['file'])}: {escape(result['problem'])}", soft_wrap=True)
    if len(odd) > SHOWN_PROBLEMS:
        console.print(f"  and {len(odd) - SHOWN_PROBLEMS} more")


def _summary(found: Figures) -> str:
    check = "clean" if not found.findings else f"{len(found.findings)} findings"
    failed = f", {found.failed} failed" if found.failed else ""
    strangers = f", {found.strangers} that nobody added" if found.strangers else ""
    mark = "green" if found.clean else "red"
    return (
        f"[{mark}]{found.jobs:,} jobs in {found.seconds:.1f} s: {found.rate:,.0f} jobs/s[/], "
        f"latency p50 {found.latency.p50:.2f} s p99 {found.latency.p99:.2f} s "
        f"(one run p50 {found.run.p50 * 1000:.0f} ms p99 {found.run.p99 * 1000:.0f} ms), "
        f"{found.retries} retries, {found.recovered} recovered{failed}, "
        f"[{mark}]{found.lost} lost, {found.duplicates} duplicates{strangers}, self-check {check}[/]"
    )
