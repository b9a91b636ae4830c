"""The tables that commands print in a terminal."""

from __future__ import annotations

import pytest

from glidemq_async.cli import output, tables


def test_rows_in_a_terminal_fit_its_width(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(output, "in_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)
    tables.print_table(["id", "count", "data"], [["a", 1, "x" * 50], ["bb", 22, "\x1b[31m"]], empty="")
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        "id  count  data",
        f"a       1  {'x' * 28}…",
        "bb     22  \N{REPLACEMENT CHARACTER}[31m",
    ]


@pytest.mark.parametrize(("count", "words"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs"), (1_000, "1,000 jobs")])
def test_one_thing_is_singular(count: int, words: str) -> None:
    assert output.counted(count, "job") == words
