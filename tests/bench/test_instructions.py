"""The count of the server's instructions: the stored figures and their comparison."""

from __future__ import annotations

import json
from typing import cast

from benchmarks.instructions import KINDS, PAGE, STORED, compare, with_table


def test_each_kind_has_stored_figures() -> None:
    stored = cast("dict[str, int]", json.loads(STORED.read_text()))
    assert set(stored) == {f"{name}, {part}" for name, kind in KINDS.items() for part in kind.parts}
    assert all(count > 0 for count in stored.values())


def test_a_figure_above_the_tolerance_is_a_problem() -> None:
    assert compare({"plain, add": 1030}, {"plain, add": 1000}) == []
    assert compare({"plain, add": 500}, {"plain, add": 1000}) == []
    [problem] = compare({"plain, add": 1031}, {"plain, add": 1000})
    assert "1031" in problem
    assert "1000" in problem


def test_the_page_has_the_stored_figures() -> None:
    stored = cast("dict[str, int]", json.loads(STORED.read_text()))
    page = PAGE.read_text()
    assert f"| {stored['plain, add']:,} |" in page
    assert with_table(page, stored) == page
    assert with_table(page, stored | {"plain, add": 1}) != page
