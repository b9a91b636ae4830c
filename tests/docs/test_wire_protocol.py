"""docs/wire-protocol.md names the functions, codes and options that the function library has."""

from __future__ import annotations

import re
from typing import get_args

from glidemq_async.functions import loader
from glidemq_async.functions.outcomes import FailureCause
from glidemq_async.options.table import JOB_OPTIONS
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "wire-protocol.md").read_text(encoding="utf-8")
LUA = loader.source()


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table after a line that begins with this text."""
    table = PAGE.partition(f"\n{heading}")[2].partition("\n|---")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]]


def test_each_error_code_of_the_library_has_a_row() -> None:
    codes = {code for row in rows("## Errors") for code in row[0].split(", ")}
    assert codes == set(re.findall(r"\bfail\('([A-Z]+)'", LUA))


def test_each_outcome_code_has_a_row() -> None:
    codes = {row[0].strip("`") for row in rows("| Code | Outcome")}
    assert codes == set(re.findall(r"^function apply\.(\w)\(", LUA, re.MULTILINE))


def test_the_names_of_options_are_the_sent_and_the_stored_ones() -> None:
    table = rows("### Options")
    stored = {name for row in table for name in re.findall(r"`(\w)`", row[1])}
    sent = {name for row in table for name in re.findall(r"`(\w+)`", row[2])}
    assert stored == {option.stored for option in JOB_OPTIONS.values()} - {""}
    assert sent - {"reply"} == {option.sent for option in JOB_OPTIONS.values()} - {""}


def test_each_function_of_the_page_exists() -> None:
    named = set(re.findall(r"^`?#* ?`?([a-z]+[A-Z]\w+)\b", PAGE, re.MULTILINE))
    registered = set(re.findall(r"register\('(\w+)'", LUA))
    assert named >= {"openQueue", "addPlain", "addJob", "settleAndClaim", "renewLeases", "closeWorker", "awaitJobs"}
    assert named <= registered


def test_each_cause_of_the_page_exists() -> None:
    said = PAGE.partition("\nThe cause is ")[2].partition("\n\n")[0]
    causes = set(re.findall(r"`(\w+)`", said))
    assert causes
    assert causes <= set(get_args(FailureCause))
