"""The figures of a demonstration as text and tables, and as JSON."""

from __future__ import annotations

import heapq
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from glidemq_async.demo.jobs.audit import Figures
from glidemq_async.demo.jobs.demonstration import Outcome
from glidemq_async.demo.jobs.measure import Measure

TOP: Final = 10
SHOWN_PROBLEMS: Final = 5
PLAIN_WIDTH: Final = 130
WIDE: Final = 110
"""Columns from which on the table holds everything."""
_NAME_WIDTH: Final = 28
_WIDE_COUNTS: Final = ("lines", "functions", "classes", "imports", "complexity")
_NARROW_COUNTS: Final = ("lines", "functions", "complexity")
_SUMS: Final = ("size", "lines", "functions", "classes", "imports", "complexity")


def top(results: list[Measure], size_of: Callable[[Measure], int]) -> list[Measure]:
    """Return the ten largest results by some measure, the largest first."""
    return heapq.nlargest(TOP, results, key=size_of)


def totals(results: list[Measure]) -> dict[str, int]:
    """Return the sums over all files, and how many did not parse or could not be read."""
    sums = {name: sum(cast("dict[str, int]", result)[name] for result in results) for name in _SUMS}
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
    console.print(_table(figures, root, wide=console.width >= WIDE))
    _print_problems(console, figures.results)
    console.print()
    console.print(_summary(figures), soft_wrap=True)
    for finding in figures.findings:
        console.print(f"  [red]broken[/]: {finding.invariant} {escape(finding.subject)} {escape(finding.message)}")
    if figures.events_missed:
        console.print(f"  {figures.events_missed:,} events were trimmed unread: not all endings could be counted")


def _table(figures: Figures, root: Path, *, wide: bool) -> Table:
    results = figures.results
    sums = totals(results)
    shown = top(results, lambda result: result["complexity"])
    title = f"The {len(shown)} most complex of {len(results):,} files in {escape(str(root))}"
    table = Table(title=title, show_footer=True)
    table.add_column("file", f"all {sums['measured']:,} that parse", overflow="fold")
    counts = _WIDE_COUNTS if wide else _NARROW_COUNTS
    for name in counts:
        table.add_column(name, f"{sums[name]:,}", justify="right")
    if wide:
        longest = max((result["longest"] for result in results), default=0)
        table.add_column("longest function", f"{longest:,}", justify="right", no_wrap=True)
    for result in shown:
        numbers = cast("dict[str, int]", result)
        cells = [f"{numbers[name]:,}" for name in counts]
        if wide:
            cells.append(f"{escape(_shortened(result['longest_name']))} {result['longest']:,}")
        table.add_row(escape(result["file"]), *cells)
    return table


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…"


def _print_problems(console: Console, results: list[Measure]) -> None:
    odd = [result for result in results if result["status"] != "measured"]
    if not odd:
        return
    console.print(f"{len(odd)} files cannot be parsed by this interpreter. Their jobs completed with this result:")
    for result in odd[:SHOWN_PROBLEMS]:
        console.print(f"  {escape(result['file'])}: {escape(result['problem'])}", soft_wrap=True)
    if len(odd) > SHOWN_PROBLEMS:
        console.print(f"  and {len(odd) - SHOWN_PROBLEMS} more")


def _summary(found: Figures) -> str:
    check = "clean" if not found.findings else f"{len(found.findings)} findings"
    failed = f", {found.failed} failed" if found.failed else ""
    strangers = f", {found.strangers} without an add" if found.strangers else ""
    mark = "green" if found.clean else "red"
    return (
        f"[{mark}]{found.jobs:,} jobs in {found.seconds:.1f} s: {found.rate:,.0f} jobs/s[/], "
        f"latency p50 {found.latency.p50:.2f} s p99 {found.latency.p99:.2f} s "
        f"(one run p50 {found.run.p50 * 1000:.0f} ms p99 {found.run.p99 * 1000:.0f} ms), "
        f"{found.retries} retries, {found.recovered} recovered{failed}, "
        f"[{mark}]{found.lost} lost, {found.duplicates} duplicates{strangers}, self-check {check}[/]"
    )
