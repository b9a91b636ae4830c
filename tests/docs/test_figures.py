"""The figures in the README and the guides match the reports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import readme

TOP = Path(__file__).parents[2]


def _text(page: str) -> str:
    return (TOP / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("place", readme.PLACES, ids=[f"{place.page}-{place.report}" for place in readme.PLACES])
def test_a_page_has_the_figures_of_its_report(place: readme.Place) -> None:
    report = _text(f"docs/reports/{place.report}")
    assert readme.with_figures(place, _text(place.page), report) == _text(place.page), "run python -m benchmarks.readme"


def test_another_report_gives_other_figures() -> None:
    place = readme.PLACES[0]
    report = _text("docs/reports/bench.md")
    before = readme.lean_part(report)
    after = re.sub(r"\| add, bulk \| [\d,]+", "| add, bulk | 9,876", before)
    [changed] = set(readme.readme_rows(after)) - set(readme.readme_rows(before))
    assert changed.startswith("| Jobs added in bulk | 9,876/s")
    assert readme.with_figures(place, _text("README.md"), report.replace(before, after)) != _text("README.md")


def test_the_rates_in_the_readme_are_rates() -> None:
    rates = [row.split("|")[2] for row in readme.readme_rows(_text("docs/reports/bench.md")) if "/s" in row]
    assert len(rates) >= 2
    assert all(int(rate.split("/s")[0].replace(",", "")) > 1_000 for rate in rates), rates


def test_a_missing_figure_is_an_error() -> None:
    report = _text("docs/reports/bench.md")
    with pytest.raises(LookupError, match="add, bulk"):
        readme.readme_rows(report.replace("| add, bulk |", "| add |"))
    with pytest.raises(LookupError, match="run make bench-lean"):
        readme.readme_rows("# Benchmark\n")


def test_a_peer_that_failed_is_named() -> None:
    report = re.sub(r"\| SAQ \|[^\n]*", "| SAQ | - | - | - | - | - |", _text("docs/reports/peers.md"))
    rows = readme.peer_rows(report)
    assert "| SAQ | not measured | | | | |" in rows
    assert len(rows) == len(readme.peer_rows(_text("docs/reports/peers.md")))


def test_the_readme_has_the_figures_of_the_crash_report() -> None:
    storm = re.search(
        r"crash stress: ([\d,]+) kills .*? ([\d,]+) jobs, .*? 0 lost, 0 doubled", _text("docs/reports/crash.md")
    )
    assert storm is not None
    readme_text = " ".join(_text("README.md").split())
    assert f"killed worker processes {storm[1]} times while {storm[2]} jobs ran: no job was lost" in readme_text
