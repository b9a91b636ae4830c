"""Numbers, durations and instants as texts of the pages."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final, cast

from glidemq_async.ops.documents import as_document

DASH: Final = "\N{EN DASH}"
"""Stands for a value that is not known."""
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))
_IN_SECONDS: Final = frozenset({"delay", "timeout", "ttl", "lock_duration", "result_ttl"})
"""Options of a job whose values are seconds."""
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def duration(seconds: float | None) -> str:
    """Return a duration in at most two units: "3 h 20 min", "4.2 s", "80 ms". A dash stands for None."""
    if seconds is None:
        return DASH
    seconds = max(0.0, seconds)
    if seconds == 0:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    for place, (size, unit) in enumerate(_UNITS):
        if seconds >= size:
            whole = int(seconds // size)
            rest = _rest(seconds - whole * size, place)
            return f"{whole} {unit}{rest}"
    return f"{seconds:.0f} s"


def _rest(seconds: float, place: int) -> str:
    size, unit = _UNITS[place + 1] if place + 1 < len(_UNITS) else (1, "s")
    count = int(seconds // size)
    return f" {count} {unit}" if count else ""


def ago(instant: datetime, now: datetime) -> str:
    """Return the distance of an instant from now: "4 min ago", "in 2 h"."""
    seconds = (now - instant).total_seconds()
    if abs(seconds) < 1:
        return "now"
    text = duration(abs(seconds))
    return f"{text} ago" if seconds > 0 else f"in {text}"


def iso(instant: datetime) -> str:
    """Return an instant in UTC for the attribute `datetime`."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc(instant: datetime) -> str:
    """Return an instant in UTC for people."""
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def number(value: float | None) -> str:
    """Return a number with separators between thousands. A dash stands for None."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def rate(value: float | None) -> str:
    """Return a number of jobs per second: "0", "0.03", "12", "3,400"."""
    if value is None:
        return DASH
    if value >= 10 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def percent(share: float | None) -> str:
    """Return a share of 1 in percent. A dash stands for None."""
    if share is None:
        return DASH
    shown = share * 100
    return f"{shown:.0f} %" if shown >= 10 or shown == 0 else f"{shown:.1f} %"


def size(count: float | None) -> str:
    """Return a number of bytes: "3.4 MiB". A dash stands for None."""
    if count is None:
        return DASH
    value = float(count)
    for unit in _SIZES[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_SIZES[-1]}"


def pretty(value: object) -> str:
    """Return a payload as indented JSON. Numbers keep every digit, because no script handles them."""
    return json.dumps(as_document(value), ensure_ascii=False, indent=2)


def option(name: str, value: object) -> object:
    """Return the document of an option of a job as a text, if a text is easier to read, and otherwise unchanged."""
    if name in _IN_SECONDS and isinstance(value, (int, float)):
        return duration(value)
    if name == "backoff" and isinstance(value, dict):
        return _backoff(cast("dict[str, Any]", value))
    return value


def _backoff(found: dict[str, Any]) -> str:
    if found["kind"] == "custom":
        return f"custom: {found['name']}"
    parts = [duration(found["initial"])]
    if found["kind"] == "exponential":
        parts.append(f"then {found['factor']:g} times as long after each failure")
    if found["max"] is not None:
        parts.append(f"at most {duration(found['max'])}")
    if found["jitter"]:
        parts.append(f"varied by up to {percent(found['jitter'])}")
    return ", ".join(parts)
