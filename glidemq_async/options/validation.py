"""Validation of job options. Each check takes the name and the value of an option and returns the normalized value.

job_options.py assigns a check to each option.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast, get_args

from glidemq_async.durations import instant_to_ms, to_ms
from glidemq_async.errors import PayloadTooLarge
from glidemq_async.functions.calling import Wait
from glidemq_async.options.backoff import Backoff
from glidemq_async.options.deduplication import Deduplication
from glidemq_async.stored.names import check_id

__all__ = [
    "LAST_PORT",
    "MAX_HEADERS_BYTES",
    "MAX_LEASE",
    "MAX_PRIORITY",
    "MIN_LEASE",
    "WAIT_OPTIONS",
    "Check",
    "boolean",
    "count",
    "deduplication",
    "durability",
    "headers",
    "lease",
    "optional_backoff",
    "optional_id",
    "optional_instant",
    "optional_lease",
    "optional_port",
    "optional_positive_number",
    "optional_positive_seconds",
    "optional_seconds",
    "port",
    "positive_number",
    "positive_real",
    "positive_seconds",
    "priority",
    "refuse_unknown",
    "seconds",
    "size_of_headers",
    "whole_number",
]

#: The value is Any because callers may ignore the types.
Check: TypeAlias = Callable[[str, Any], object]

MAX_HEADERS_BYTES: Final = 65_536
MIN_LEASE: Final = 1
MAX_LEASE: Final = 24 * 60 * 60
MAX_PRIORITY: Final = 2**21
MAX_REAL: Final = 10**12
LAST_PORT: Final = 65_535
WAIT_OPTIONS: Final = frozenset({"wait_timeout", "revoke_if_abandoned"})
"""The options of `add_and_wait` that are no options of its job."""

_LARGEST: Final = 2**31 - 1
_DURABILITIES: Final = get_args(Wait)
_LONGEST_REASON: Final = 500


def refuse_unknown(found: Collection[str], valid: Collection[str], of: str = "job") -> None:
    """Raise TypeError for the first name that is not valid, with the most similar valid name."""
    for name in found:
        if name not in valid:
            near = get_close_matches(name, valid, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(valid)}"
            if name in WAIT_OPTIONS:
                hint = f"it is an option of add_and_wait; with a task, call wait_options({name}=...)"
            raise TypeError(f"unknown {of} option {name!r}: {hint}")


def whole_number(name: str, value: object, *, least: int, most: int = _LARGEST) -> int:
    """Accept an int from `least` to `most`, but not a bool."""
    # bool is a subclass of int, so `attempts=True` would otherwise pass as 1.
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, got {value!r}")
    return value


def positive_number(name: str, value: object) -> int:
    """Accept an int of at least 1."""
    return whole_number(name, value, least=1)


def optional_positive_number(name: str, value: object) -> int | None:
    """Accept an int of at least 1, or None."""
    return None if value is None else positive_number(name, value)


def count(name: str, value: object) -> int:
    """Accept an int of at least 0."""
    return whole_number(name, value, least=0)


def port(name: str, value: object) -> int:
    """Accept a port. 0 means any free one."""
    return whole_number(name, value, least=0, most=LAST_PORT)


def optional_port(name: str, value: object) -> int | None:
    """Accept a port, or None."""
    return None if value is None else port(name, value)


def positive_real(name: str, value: object) -> float:
    """Accept a finite number of at least a thousandth."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, not {value!r}")
    if not 0.001 <= value <= MAX_REAL:
        raise ValueError(f"{name} must be from 0.001 to {MAX_REAL}, got {value!r}")
    return float(value)


def priority(name: str, value: object) -> int:
    """Accept a priority: 0 is the most urgent."""
    return whole_number(name, value, least=0, most=MAX_PRIORITY)


def boolean(name: str, value: object) -> bool:
    """Accept True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return value


def deduplication(name: str, value: object) -> Deduplication | None:
    """Accept a Deduplication, or None."""
    if value is not None and not isinstance(value, Deduplication):
        raise TypeError(f"{name} must be a Deduplication, not {value!r}")
    return value


def optional_id(name: str, value: Any) -> str | None:
    """Accept an id, or None."""
    return None if value is None else check_id(name, value)


def seconds(name: str, value: Any) -> float:
    """Accept a duration, zero included."""
    return to_ms(name, value) / 1000


def positive_seconds(name: str, value: Any) -> float:
    """Accept a duration above zero."""
    return to_ms(name, value, allow_zero=False) / 1000


def lease(name: str, value: Any) -> float:
    """Accept a duration from one second to a day."""
    chosen = seconds(name, value)
    if not MIN_LEASE <= chosen <= MAX_LEASE:
        raise ValueError(f"{name} must be from 1 second to 24 hours, got {value!r}")
    return chosen


def optional_seconds(name: str, value: Any) -> float | None:
    """Accept a duration, zero included, or None."""
    return None if value is None else seconds(name, value)


def optional_positive_seconds(name: str, value: Any) -> float | None:
    """Accept a duration above zero, or None."""
    return None if value is None else positive_seconds(name, value)


def optional_lease(name: str, value: Any) -> float | None:
    """Accept a duration from one second to a day, or None."""
    return None if value is None else lease(name, value)


def optional_instant(name: str, value: Any) -> datetime | None:
    """Accept an instant with a time zone, or None."""
    if value is None:
        return None
    # Only checked here. The milliseconds are computed when the options are sent, so that `options.at` stays the value
    # that the user gave.
    instant: datetime = value
    instant_to_ms(name, instant)
    return instant


def optional_backoff(name: str, value: Any) -> Backoff | None:
    """Accept a Backoff, a fixed wait as a duration, or None."""
    if value is None or isinstance(value, Backoff):
        return value
    return Backoff.fixed(seconds(name, value))


def headers(name: str, value: object) -> Mapping[str, str]:
    """Accept a mapping of str to str that is not too large, and return a read-only copy."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping of str to str, not {value!r}")
    copy = dict(cast("Mapping[object, object]", value))
    for key, text in copy.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"{name} must map str to str, got {key!r}: {text!r}")
    checked = cast("dict[str, str]", copy)
    try:
        size = size_of_headers(checked)
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} contains a lone surrogate, not valid in UTF-8: {error.object!r}") from None
    if size > MAX_HEADERS_BYTES:
        raise PayloadTooLarge(name, size, MAX_HEADERS_BYTES)
    # A copy: the caller's dict may change after the check.
    return MappingProxyType(checked)


def size_of_headers(headers: Mapping[str, str]) -> int:
    """Return the size of headers in bytes."""
    return sum(len(key.encode()) + len(text.encode()) for key, text in headers.items())


def reason(name: str, value: object) -> str:
    """Accept one line of text with at most 500 characters. None becomes ""."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {value!r}")
    # The reason becomes a part of events, whose separators are control characters, and of log lines.
    if not value or len(value) > _LONGEST_REASON or not value.isprintable():
        raise ValueError(f"{name} must be one line of 1 to {_LONGEST_REASON} characters, got {value[:80]!r}")
    return value


def durability(name: str, value: Any) -> object:
    """Accept one of the three durabilities."""
    if value not in _DURABILITIES:
        raise ValueError(f"{name} must be one of {', '.join(_DURABILITIES)}, got {value!r}")
    return value
