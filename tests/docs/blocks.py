"""The samples of the documentation: every fenced block of the README and of docs/, with its language and its mark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(
    r"(?:^<!-- fragment: (?P<reason>[^\n]+?) -->\n+)?^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_PAGE = re.compile(r"^<!-- fragments: (?P<reason>[^\n]+?) -->$", re.MULTILINE)
_FILE = re.compile(r"# (?P<path>[\w/]+\.py)\b")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: str
    line: int
    """The line of the page on which its text begins."""
    language: str
    text: str
    reason: str | None
    """The reason why it cannot run by itself, or None if it can."""

    @property
    def file(self) -> str | None:
        """The file that it shows, according to the comment in its first line."""
        found = _FILE.match(self.text)
        return found["path"] if found else None


def blocks(page: Path) -> Iterator[Block]:
    """Return the blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    whole = _PAGE.search(text)
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("text")) + 1
        yield Block(page.stem, line, found["language"], found["text"], found["reason"] or (whole and whole["reason"]))
