"""The catalogue of events is the same in the Lua that writes them, in the class that reads them, and on their page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import glidemq_async
from glidemq_async.queues.events import WITH_DETAIL, EventKind

ROOT = Path(glidemq_async.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "events.md"
KINDS = frozenset[str](get_args(EventKind))


def _lua_table(name: str) -> str:
    text = (ROOT / "functions" / "events.lua").read_text(encoding="utf-8")
    found = re.search(rf"^local {name} = {{(.*?)}}$", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"events.lua has no table {name}"
    return found[1]


def _rows() -> list[tuple[set[str], str]]:
    """Return the table of the page: the kinds of each row, and its detail."""
    text = PAGE.read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return [(set(re.findall(r"`([^`]+)`", row[0])), row[2].strip()) for row in rows]


def test_the_lua_writes_the_kinds_that_python_reads() -> None:
    kinds = re.findall(r"'([^']+)'", _lua_table("KINDS"))
    assert len(kinds) == len(set(kinds))
    assert set(kinds) == KINDS


def test_the_lua_writes_the_details_that_python_reads() -> None:
    words = re.findall(r"(?:\['([^']+)'\]|(\w+)) = true", _lua_table("DETAIL"))
    assert {quoted or plain for quoted, plain in words} == WITH_DETAIL
    assert KINDS >= WITH_DETAIL


def test_the_page_describes_every_kind() -> None:
    described = [kind for kinds, _ in _rows() for kind in kinds]
    assert len(described) == len(set(described))
    assert set(described) == KINDS


def test_the_page_describes_each_detail() -> None:
    assert {kind for kinds, detail in _rows() if detail for kind in kinds} == WITH_DETAIL
