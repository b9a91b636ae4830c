"""The common parts of drawings as SVG: the style sheet, texts, and the frame with a title and a description."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape, quoteattr

CHARACTER: Final = 6.2
"""The width of a character in a drawing."""

_STATES: Final = {
    "completed": ("#e4f5e7", "#2e7d32"),
    "failed": ("#fde7e7", "#c62828"),
    "active": ("#e3effc", "#1565c0"),
    "waiting": ("#fff6dd", "#a06a00"),
    "suspended": ("#f0e8fb", "#6a3fb5"),
    "planned": ("#f4f5f7", "#6b7280"),
}
_SAME: Final = {
    "waiting": ("prioritized", "key-waiting", "rate-limited", "delayed"),
    "suspended": ("waiting-children", "wait"),
    "planned": ("cancelled", "removed"),
    "active": ("step", "run"),
}


def _style() -> str:
    rules = [
        ".gq-drawing{font:12px ui-sans-serif,system-ui,sans-serif;background:var(--gq-paper,#fff)}",
        ".gq-drawing text{fill:var(--gq-ink,#1f2430)}",
        ".gq-drawing .faint{fill:var(--gq-faint,#5b6472)}",
        ".gq-drawing .edge{fill:none;stroke:var(--gq-line,#98a1b0);stroke-width:1.4}",
        ".gq-drawing .tip{fill:var(--gq-line,#98a1b0)}",
        ".gq-drawing .axis{stroke:var(--gq-grid,#dfe3ea);stroke-width:1}",
        ".gq-drawing rect{stroke-width:1.4;rx:6px}",
        ".gq-drawing .bar rect{rx:2px}",
        ".gq-drawing .focus rect{stroke-width:3}",
        ".gq-drawing .state-cancelled rect,.gq-drawing .state-planned rect{stroke-dasharray:4 3}",
    ]
    for state, (fill, line) in _STATES.items():
        names = (state, *_SAME.get(state, ()))
        boxes = ",".join(f".gq-drawing .state-{name} rect,.gq-drawing .state-{name} path" for name in names)
        rules.append(f"{boxes}{{fill:var(--gq-{state}-fill,{fill});stroke:var(--gq-{state},{line})}}")
    return "".join(rules)


_DARK: Final = (
    "@media (prefers-color-scheme:dark){.gq-drawing:not(.gq-plain){--gq-paper:#14171d;--gq-ink:#e8ebf0;"
    "--gq-faint:#a4adbb;--gq-line:#768092;--gq-grid:#2c323d;--gq-completed-fill:#16351c;--gq-completed:#66bb6a;"
    "--gq-failed-fill:#451a1a;--gq-failed:#ef7070;--gq-active-fill:#132f4d;--gq-active:#64a9f0;"
    "--gq-waiting-fill:#3d3111;--gq-waiting:#e0b040;--gq-suspended-fill:#2f2148;--gq-suspended:#b390ee;"
    "--gq-planned-fill:#1f242d;--gq-planned:#8b95a5}}"
)
STYLE: Final = _style()
"""The style sheet of the drawings. Its colours are variables with the prefix `--gq-`, which a page may set."""


_SHEET: Final = STYLE + _DARK
STYLE_SOURCE: Final = f"'sha256-{base64.b64encode(hashlib.sha256(_SHEET.encode()).digest()).decode()}'"
"""The source of the style sheet of a drawing, for a content security policy."""


def frame(width: float, height: float, title: str, description: str, body: Iterable[str], *, styled: bool) -> str:
    """Return a drawing of this size in pixels with a title and a description for screen readers."""
    style = f"<style>{_SHEET}</style>" if styled else ""
    size = f'width="{_n(width)}" height="{_n(height)}" viewBox="0 0 {_n(width)} {_n(height)}"'
    plain = "" if styled else " gq-plain"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} class="gq-drawing{plain}" role="group" '
        f"aria-label={quoteattr(title)}><title>{clean(title)}</title><desc>{clean(description)}</desc>{style}"
        f"{''.join(body)}</svg>\n"
    )


def text(x: float, y: float, content: str, css: str = "", *, anchor: str = "start") -> str:
    """Return a text that begins at a place, or ends there with the anchor "end"."""
    name = f' class="{css}"' if css else ""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{_n(x)}" y="{_n(y)}"{name}{where}>{clean(content)}</text>'


def box(x: float, y: float, width: float, height: float) -> str:
    """Return a rectangle."""
    return f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"/>'


def fitted(content: str, width: float) -> str:
    """Return a text that is shortened to a width in pixels."""
    most = int(width / CHARACTER)
    return content if len(content) <= most else f"{content[: max(1, most - 1)]}…"


def clean(content: str) -> str:
    """Return a text for XML. Characters that XML forbids are replaced."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in content)
    return escape(shown)


def css_name(state: str) -> str:
    """Return the CSS class of a state."""
    return "state-" + "".join(c if c.isalnum() or c == "-" else "-" for c in state)


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")
