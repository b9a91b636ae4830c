"""`python -m benchmarks.readme`: copy figures of docs/reports/bench.md into the README and docs/services.md.

A test compares the pages with the report, so run this after a new report was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "reports" / "bench.md"
_MARKED = re.compile(r"(<!-- figures of docs/reports/bench\.md, [^\n]+-->\n)(.*?)(<!-- end -->)", re.DOTALL)


class ReportedRange(NamedTuple):
    """The median of all rounds, and the lowest and highest value if the report has them."""

    median: float
    least: float
    most: float


class Report:
    """The rows of a report. A row is found by its first cell; `jobs/s` and `p99 µs` are columns of its main table."""

    def __init__(self, text: str) -> None:
        self._tables = [_rows(table) for table in re.findall(r"(?:^\|[^\n]*\|\n)+", text, re.MULTILINE)]

    def value(self, row: str, column: str) -> ReportedRange:
        """Return a figure. Raises LookupError if the report does not have it."""
        for heading, *rows in self._tables:
            for cells in rows:
                if cells[0] == row and column in heading and cells[heading.index(column)]:
                    return _spread(cells[heading.index(column)])
        raise LookupError(f"docs/reports/bench.md has no figure {column!r} in a row {row!r}")

    def target(self, row: str) -> ReportedRange:
        """Return the measured value of a target."""
        for _, *rows in self._tables:
            for cells in rows:
                if cells[0] == row and cells[-1] in {"met", "MISSED"}:
                    return _spread(cells[2])
        raise LookupError(f"docs/reports/bench.md has no target {row!r}")


def _rows(table: str) -> list[list[str]]:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return [cells for cells in lines if not set("".join(cells)) <= {"-", ":"}] or [[]]


def _spread(cell: str) -> ReportedRange:
    numbers = [float(found.replace(",", "")) for found in re.findall(r"\d[\d,]*(?:\.\d+)?", cell)]
    return ReportedRange(*numbers[:3]) if len(numbers) >= 3 else ReportedRange(numbers[0], numbers[0], numbers[0])


def _text(spread: ReportedRange, write: Callable[[float], str], unit: str) -> str:
    median, least, most = map(write, spread)
    return f"{median}{unit}" if least == most else f"{median}{unit} ({least} to {most})"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _milliseconds(value: float) -> str:
    return f"{value / 1000:.1f}" if value < 10_000 else f"{value / 1000:.0f}"


def readme_rows(report: Report) -> list[str]:
    """Return the rows of the table in the README."""
    idle, calls = "idle: add -> handler", report.target("start of a job on an idle worker, p50")
    rows = {
        "Jobs that one worker process completes (no-op, concurrency 100)": _text(
            report.value("drain, concurrency 100", "jobs/s"), _whole, "/s"
        ),
        "The same as a share of a bare redis-py streams loop, which keeps no records and cannot retry (goal: 0.5)": (
            _text(report.target("rate of draining at concurrency 100"), _ratio, "")
        ),
        "Jobs added in bulk": _text(report.value("add, bulk", "jobs/s"), _whole, "/s"),
        "From `add` to the handler in another, idle process, median": _text(
            report.value(idle, "p50 µs"), _milliseconds, " ms"
        ),
        "The same in round trips to the server (goal: 2)": _text(calls, lambda value: f"{value:.1f}", ""),
        "The same, 99th percentile": _text(report.value(idle, "p99 µs"), _milliseconds, " ms"),
    }
    return ["| Measurement | Value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]


def services_rows(report: Report) -> list[str]:
    """Return the rows of the table of latencies in docs/services.md."""
    lines = [
        "| Requests per second | `add` p50 | `add` p99 | whole request p50 | whole request p99 |",
        "|---|---|---|---|---|",
    ]
    for pace in ("500/s", "1,000/s", "no rest"):
        name = f"FastAPI, 200 clients, {pace}"
        most = _whole(report.value(f"{name}: request", "jobs/s").median)
        cells = [f"as many as possible: {most}" if pace == "no rest" else pace.removesuffix("/s")]
        figures = [report.value(f"{name}: {part}", f"{p} µs") for part in ("add", "request") for p in ("p50", "p99")]
        cells += [f"{_milliseconds(figure.median)} ms" for figure in figures]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


PAGES: dict[str, Callable[[Report], Sequence[str]]] = {"README.md": readme_rows, "docs/services.md": services_rows}


def with_figures(page: str, text: str, report: Report) -> str:
    """Return a page with the figures of the report. Raises LookupError if the page has no place for them."""
    table = "\n".join(PAGES[page](report)) + "\n"
    found, times = _MARKED.subn(lambda match: match[1] + table + match[3], text)
    if times != 1:
        raise LookupError(f"{page} has {times} places for figures; expected one")
    return found


def main() -> None:
    """Write the figures into the pages."""
    report = Report(REPORT.read_text(encoding="utf-8"))
    for page in PAGES:
        path = ROOT / page
        path.write_text(with_figures(page, path.read_text(encoding="utf-8"), report), encoding="utf-8")


if __name__ == "__main__":
    main()
