"""The drawing of a waterfall as SVG: one line for each row, below a time axis."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from glidemq_async.ops.drawings import box, clean, css_name, fitted, frame, text
from glidemq_async.ops.waterfall_parts import WaterfallParts, WaterfallRow

MOST_ROWS: Final = 500
"""Maximum number of rows of a drawing. Its last line has the number of the others."""
_LABELS: Final = 250.0
_BARS: Final = 640.0
_END: Final = 90.0
"""The space after the last bar, for its duration."""
_ROW: Final = 24.0
_BAR: Final = 12.0
_TOP: Final = 34.0
_MARGIN: Final = 14.0
_INDENT: Final = {"job": 0, "attempt": 1}
_NICE: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400)
_MOST_TICKS: Final = 7
_STATES: Final = {"received": "completed", "timeout": "cancelled"}


def waterfall_svg(waterfall: WaterfallParts, *, styled: bool) -> str:
    """Return a waterfall as SVG."""
    rows = waterfall.rows[:MOST_ROWS]
    more = len(waterfall.rows) - len(rows)
    began = waterfall.began_at
    span = max((waterfall.ended_at - began).total_seconds(), 0.001)
    height = _TOP + (len(rows) + bool(more)) * _ROW + _MARGIN
    body = [*_axis(span, height - _MARGIN)]
    for number, row in enumerate(rows):
        body.append(_line(row, number, began, span, waterfall.as_of))
    if more:
        body.append(text(_MARGIN, _TOP + len(rows) * _ROW + 16, f"and {more:,} more", "faint"))
    title = f"Waterfall of job {waterfall.id} in queue {waterfall.queue}"
    description = f"{waterfall.name}, {waterfall.state}: {len(waterfall.rows):,} rows in {duration(span)}."
    return frame(_MARGIN + _LABELS + _BARS + _END, height, title, description, body, styled=styled)


def _axis(span: float, bottom: float) -> Iterator[str]:
    step = _step(span)
    for number in range(int(span / step) + 1):
        x = _MARGIN + _LABELS + number * step / span * _BARS
        yield f'<path class="axis" d="M{x:.1f} {_TOP - 8:.1f}V{bottom:.1f}"/>'
        yield text(x, _TOP - 14, duration(number * step), "faint", anchor="middle")


def _step(span: float) -> float:
    """Return the distance between two marks of the axis in seconds."""
    least = span / _MOST_TICKS
    scale = 0.001
    while scale < 1:
        for factor in (1, 2, 5):
            if factor * scale >= least:
                return factor * scale
        scale *= 10
    days = next((one for one in _NICE if one >= least), None)
    return float(days) if days is not None else 86_400.0 * (int(least / 86_400) + 1)


def _line(row: WaterfallRow, number: int, began: datetime, span: float, as_of: datetime) -> str:
    top = _TOP + number * _ROW
    left = _MARGIN + _LABELS + (row.started_at - began).total_seconds() / span * _BARS
    seconds = max(((row.ended_at or as_of) - row.started_at).total_seconds(), 0)
    width = max(seconds / span * _BARS, 2)
    indent = _MARGIN + 12 * _INDENT.get(row.kind, 2)
    label = text(indent, top + 16, fitted(_label(row), _MARGIN + _LABELS - indent - 10))
    middle = top + _ROW / 2
    if row.kind == "signal":
        mark = f'<path d="M{left:.1f} {middle - 6:.1f}l6 6l-6 6l-6 -6z"/>'
        shown = row.outcome
    else:
        mark = box(left, middle - _BAR / 2, width, _BAR)
        shown = duration(seconds) if row.ended_at else f"{duration(seconds)}…"
    at = left + (width if row.kind != "signal" else 6) + 6
    css = css_name(_STATES.get(row.outcome, row.outcome) if row.kind != "wait" or row.outcome == "timeout" else "wait")
    bar = f'<g class="bar {css}"><title>{clean(_tip(row, shown))}</title>{mark}</g>'
    return f'<g class="row">{label}{bar}{text(at, top + 16, shown, "faint")}</g>'


def _label(row: WaterfallRow) -> str:
    return f"signal {row.name}" if row.kind == "signal" else row.name


def _tip(row: WaterfallRow, shown: str) -> str:
    detail = f": {row.detail}" if row.detail else ""
    began = row.started_at.isoformat(timespec="milliseconds")
    return f"{row.kind} {row.name}, {row.outcome}, {shown}, from {began}{detail}"


def duration(seconds: float) -> str:
    """Return a duration for people, for example "1.2 s" and "3 d 4 h"."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms" if seconds else "0"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    parts = [(whole // 86_400, "d"), (whole // 3_600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    return " ".join(f"{value} {unit}" for value, unit in [part for part in parts if part[0]][:2])
