"""Durations as texts of a report."""

from __future__ import annotations

import math


def duration(ms: float | None) -> str:
    """Return milliseconds in a readable unit: 840 ms, 1.2 s, 3.5 min, 2 h."""
    if ms is None:
        return "-"
    for limit, unit, name in ((1000, 1, "ms"), (60_000, 1000, "s"), (3_600_000, 60_000, "min")):
        if ms < limit:
            return f"{_short(ms / unit)} {name}"
    return f"{_short(ms / 3_600_000)} h"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or math.isclose(value, round(value)) else f"{value:.3g}"
