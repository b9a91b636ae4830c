"""The tables of job options in the documents agree with the table in the code."""

from __future__ import annotations

import re
from pathlib import Path

from glidemq_async.options.job_options import JobOptions, JobOptionsDict
from glidemq_async.options.table import JOB_OPTIONS

DOCS = Path(__file__).parents[2] / "docs"


def table(page: str, header: str) -> list[list[str]]:
    """Return the rows of the table with this header."""
    _, found, rest = (DOCS / page).read_text().partition(f"{header}\n")
    assert found, f"{page} has no table {header}"
    lines = rest.split("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_table_of_options_matches_the_code() -> None:
    rows = table("queues.md", "| Option | Default | Meaning |")
    documented = {name.strip("`"): (default.strip('\u2013`"'), meaning) for name, default, meaning in rows}
    expected = {}
    for name, option in JOB_OPTIONS.items():
        default = getattr(JobOptions(), name)
        shown = "" if default is None or default == {} else f"{default:g}" if isinstance(default, float) else default
        expected[name] = (str(shown), option.help)
    assert documented == expected
    assert list(documented) == list(JobOptionsDict.__annotations__)


def test_every_option_is_described_in_the_class() -> None:
    described = JobOptions.__doc__ or ""
    assert [name for name in JOB_OPTIONS if f"`{name}`" not in described] == []


def test_the_columns_of_a_spark_write_match_the_code() -> None:
    rows = table("spark-write.md", "| Column | Type | Meaning |")
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    assert named == {"id", "name", "data", "queue", "opts"} | {
        name for name, option in JOB_OPTIONS.items() if option.column
    }
