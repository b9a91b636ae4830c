"""`python -m benchmarks.readme`: copy figures of the reports into the README and docs/services.md.

A test compares the pages with the reports, so run this after a new report was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).parents[1]
REPORTS: Final = ROOT / "docs" / "reports"
REPORT: Final = REPORTS / "bench.md"
_LEAN: Final = re.compile(r"<!-- the lean path -->\n.*?<!-- end of the lean path -->\n", re.DOTALL)


class ReportedRange(NamedTuple):
    """The median of all rounds, and the lowest and highest value if the report has them."""

    median: float
    least: float
    most: float


class Report:
    """The rows of a report. A row is found by its first cell; `jobs/s` and `p99 µs` are columns of its main table."""

    def __init__(self, text: str, name: str = "bench.md") -> None:
        self._tables = [_rows(table) for table in re.findall(r"(?:^\|[^\n]*\|\n)+", text, re.MULTILINE)]
        self._name = f"docs/reports/{name}"

    def value(self, row: str, column: str) -> ReportedRange:
        """Return a figure. Raises LookupError if the report does not have it."""
        for heading, *rows in self._tables:
            for cells in rows:
                if cells[0] == row and column in heading and cells[heading.index(column)]:
                    return _spread(cells[heading.index(column)])
        raise LookupError(f"{self._name} has no figure {column!r} in a row {row!r}")

    def target(self, row: str) -> ReportedRange | None:
        """Return the measured value of a target, or None if it was not measured."""
        for _, *rows in self._tables:
            for cells in rows:
                if cells[0] == row and cells[-1] in {"met", "MISSED"}:
                    return None if cells[2] == "not measured" else _spread(cells[2])
        raise LookupError(f"{self._name} has no target {row!r}")

    def goal(self, row: str) -> str:
        """Return the bound of a target, for example ">= 0.90"."""
        for _, *rows in self._tables:
            for cells in rows:
                if cells[0] == row and cells[-1] in {"met", "MISSED"}:
                    return " ".join(cells[1].split()[:2])
        raise LookupError(f"{self._name} has no target {row!r}")

    def table_with(self, column: str) -> list[list[str]]:
        """Return the heading and the rows of the table that has this column."""
        found = next((table for table in self._tables if column in table[0]), None)
        if found is None:
            raise LookupError(f"{self._name} has no table with a column {column!r}")
        return found


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


def lean_part(text: str) -> str:
    """Return the section of the lean path. Raises LookupError if the report has none."""
    found = _LEAN.search(text)
    if found is None:
        raise LookupError("docs/reports/bench.md has no section of the lean path: run make bench-lean")
    return found[0]


# Each row of the README with the target that it shows, and the row and column of the plain figure next to it.
_SPEED: Final = (
    (
        "No-op jobs of one worker process with 100 slots, Python 3.11",
        ("drain, concurrency 100, Python 3.11", "jobs/s", _whole, "/s"),
        "drain of plain jobs at concurrency 100, Python 3.11",
    ),
    (
        "The same, Python 3.13",
        ("drain, concurrency 100, Python 3.13", "jobs/s", _whole, "/s"),
        "drain of plain jobs at concurrency 100, Python 3.13",
    ),
    ("Jobs added in bulk", ("add, bulk", "jobs/s", _whole, "/s"), "rate of add_bulk"),
    (
        "From `add` to the handler in another, idle process, median",
        ("idle: add -> handler", "p50 µs", _milliseconds, " ms"),
        "start of a job on an idle worker, p50",
    ),
    (
        "The same, 99th percentile",
        ("idle: add -> handler", "p99 µs", _milliseconds, " ms"),
        "start of a job on an idle worker, p99",
    ),
    ("Request and reply, median", ("request/reply", "p50 µs", _milliseconds, " ms"), "request and reply, p50"),
)


def readme_rows(text: str) -> list[str]:
    """Return the rows of the table in the README. A row that was not measured is left out."""
    report = Report(lean_part(text))
    lines = ["| Measurement | Value | Share of the bare loop | Goal |", "|---|---|---|---|"]
    for name, (row, column, write, unit), target in _SPEED:
        share = report.target(target)
        if share is not None:
            value = _text(report.value(row, column), write, unit)
            lines.append(f"| {name} | {value} | {_text(share, _ratio, '')} | {report.goal(target)} |")
    return lines


def peer_rows(text: str) -> list[str]:
    """Return the rows of the table of peers in the README."""
    report = Report(text, "peers.md")
    _, *rows = report.table_with("drain jobs/s")
    lines = [
        "| | Jobs/s | Worker CPU per job | Server CPU per job | Added by 50 callers | Idle, median |",
        "|---|---|---|---|---|---|",
    ]
    for title, *_ in rows:
        try:
            lines.append(_peer_row(report, title))
        except (LookupError, IndexError):
            lines.append(f"| {title} | not measured | | | | |")
    return lines


def _peer_row(report: Report, title: str) -> str:
    def median(column: str) -> float:
        return report.value(title, column).median

    cells = [
        _whole(median("drain jobs/s")),
        f"{median('worker CPU µs/job'):,.0f} µs",
        f"{median('server CPU µs/job'):,.0f} µs",
        f"{_whole(median('50 callers /s'))}/s",
        f"{_milliseconds(median('idle p50 µs'))} ms",
    ]
    return f"| {title} | {' | '.join(cells)} |"


def services_rows(text: str) -> list[str]:
    """Return the rows of the table of latencies in docs/services.md."""
    report = Report(text)
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


class Place(NamedTuple):
    """A place for figures: its page, the report that has them, and the function that writes the rows."""

    page: str
    report: str
    rows: Callable[[str], Sequence[str]]


PLACES: Final = (
    Place("README.md", "bench.md", readme_rows),
    Place("README.md", "peers.md", peer_rows),
    Place("docs/services.md", "bench.md", services_rows),
)


def with_figures(place: Place, text: str, report: str) -> str:
    """Return a page with the figures of a report. Raises LookupError if the page has no place for them."""
    marked = re.compile(
        rf"(<!-- figures of docs/reports/{re.escape(place.report)}, [^\n]+-->\n)(.*?)(<!-- end -->)", re.DOTALL
    )
    table = "\n".join(place.rows(report)) + "\n"
    found, times = marked.subn(lambda match: match[1] + table + match[3], text)
    if times != 1:
        raise LookupError(f"{place.page} has {times} places for figures of {place.report}; expected one")
    return found


def main() -> None:
    """Write the figures into the pages."""
    for place in PLACES:
        path = ROOT / place.page
        report = (REPORTS / place.report).read_text(encoding="utf-8")
        path.write_text(with_figures(place, path.read_text(encoding="utf-8"), report), encoding="utf-8")


if __name__ == "__main__":
    main()
