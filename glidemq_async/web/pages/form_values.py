"""The values of the fields of forms: durations, numbers, JSON and limits."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

from glidemq_async.durations import parse_duration
from glidemq_async.queues.rates import RateLimit
from glidemq_async.web.pages.change_forms import BadField, Form


def seconds(form: Form, name: str) -> float | None:
    """Return a duration of a form in seconds, None if the field is empty. Raises BadField."""
    text = form.get(name, "").strip()
    if not text:
        return None
    if text.replace(".", "", 1).isdigit():
        return float(text)
    found = parse_duration(text)
    if found is None:
        raise BadField(f"{text!r} is no duration; write for example 90s, 10m, 2h or 1d")
    return found


def until(form: Form) -> datetime | None:
    """Return the instant at which a pause ends, None if the field is empty. Raises BadField."""
    length = seconds(form, "for")
    return None if length is None else datetime.now(UTC) + timedelta(seconds=length)


def whole(form: Form, name: str) -> int | None:
    """Return a whole number of a form, None if the field is empty. Raises BadField."""
    text = form.get(name, "").strip()
    if not text:
        return None
    if not text.lstrip("-").isdigit():
        raise BadField(f"{text!r} is no whole number")
    return int(text)


def value(form: Form, name: str) -> object:
    """Return a JSON value of a form, None if the field is empty. Raises BadField."""
    text = form.get(name, "").strip()
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadField(f"the text is not JSON: {error}") from error


def needed(found: Any, label: str) -> Any:
    """Return a value that must be there. Raises BadField."""
    if found is None:
        raise BadField(f"{label} is missing")
    return found


def rate_texts(limit: RateLimit | None) -> dict[str, str]:
    """Return the fields of a rate limit."""
    if limit is None:
        return {"rate": "", "per": ""}
    length = limit.duration.total_seconds() if isinstance(limit.duration, timedelta) else limit.duration
    return {"rate": str(limit.max), "per": f"{length:g}s"}


def shown_number(number: int | None) -> str:
    """Return the field of a number, "" for None."""
    return "" if number is None else str(number)


class LimitValues(TypedDict):
    """The limits of a form. None means no limit."""

    concurrency: int | None
    rate_limit: RateLimit | None


def limit_values(form: Form) -> LimitValues:
    """Return the limits of a form. Raises BadField."""
    count, window = whole(form, "rate"), seconds(form, "per")
    if (count is None) != (window is None):
        raise BadField("a rate limit needs both the number of jobs and the window")
    limit = None if count is None or window is None else RateLimit(count, window)
    return {"concurrency": whole(form, "concurrency"), "rate_limit": limit}
