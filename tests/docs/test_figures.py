"""The figures in the README and the guides match the reports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import readme

TOP = Path(__file__).parents[2]


def _text(page: str) -> str:
    return (TOP / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", readme.PAGES)
def test_a_page_has_the_figures_of_the_benchmark_report(page: str) -> None:
    report = readme.Report(_text("docs/reports/bench.md"))
    assert readme.with_figures(page, _text(page), report) == _text(page), "run python -m benchmarks.readme"


def test_a_changed_report_changes_the_figures_of_the_readme() -> None:
    report = readme.Report(
        _text("docs/reports/bench.md").replace("| drain, concurrency 100 | 2", "| drain, concurrency 100 | 9")
    )
    assert readme.with_figures("README.md", _text("README.md"), report) != _text("README.md")


def test_a_missing_figure_is_an_error() -> None:
    with pytest.raises(LookupError, match="drain, concurrency 100"):
        readme.readme_rows(readme.Report(_text("docs/reports/bench.md").replace("drain, concurrency 100", "drain")))


def test_the_readme_has_the_figures_of_the_crash_report() -> None:
    storm = re.search(
        r"crash stress: ([\d,]+) kills .*? ([\d,]+) jobs, .*? 0 lost, 0 doubled", _text("docs/reports/crash.md")
    )
    assert storm is not None
    readme_text = " ".join(_text("README.md").split())
    assert f"killed worker processes {storm[1]} times while {storm[2]} jobs ran: no job was lost" in readme_text
