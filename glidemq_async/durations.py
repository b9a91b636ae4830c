"""Convert durations and instants as users write them (seconds, timedelta, datetime) to stored milliseconds."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["LAST_MS", "LONGEST_SECONDS", "MAX_MS", "from_ms", "instant_to_ms", "parse_duration", "to_ms"]

#: The server handles milliseconds as doubles, which are exact up to this value.
MAX_MS: Final = 2**53 - 1

#: The last instant that a datetime can hold, at the end of the year 9999.
LAST_MS: Final = 253_402_300_799_999

#: The longest duration: a thousand years, so that now and the duration together stay before `LAST_MS`.
LONGEST_SECONDS: Final = 1_000 * 31_557_600

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def to_ms(option: str, value: float | timedelta, *, allow_zero: bool = True) -> int:
    """Return a duration given in seconds as whole milliseconds, rounded up so that nothing becomes zero.

    Raises TypeError for anything but a number or a timedelta, ValueError for a negative, infinite or NaN one,
    for one of more than a thousand years, and for zero unless it is allowed; both name the option and the value.
    """
    seconds = _number(option, value.total_seconds() if isinstance(value, timedelta) else value)
    if not -math.inf < seconds < math.inf:
        raise ValueError(f"{option} must be a finite number of seconds, not {value!r}")
    if seconds < 0:
        raise ValueError(f"{option} must not be negative, got {value!r}")
    if seconds == 0 and not allow_zero:
        raise ValueError(f"{option} must be more than zero, got {value!r}")
    if seconds > LONGEST_SECONDS:
        raise ValueError(f"{option} must be at most {LONGEST_SECONDS} seconds (1,000 years), got {value!r}")
    if isinstance(value, timedelta):  # its microseconds are exact, and seconds as a float are not
        return -(-value // _MILLISECOND)
    return seconds * 1000 if isinstance(seconds, int) else _ceil_ms(seconds)


def parse_duration(text: str) -> float | None:
    """Return the seconds of a text such as "90s", "1h30m" or "3d", None for any other text."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def _number(option: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{option} must be seconds (int, float) or a timedelta, not {value!r}")
    return value


def _ceil_ms(seconds: float) -> int:
    # 0.07 * 1000 is 70.00000000000001: a whole number with an error in its last bits must not be rounded up.
    milliseconds = seconds * 1000
    nearest = round(milliseconds)
    if math.isclose(milliseconds, nearest, rel_tol=1e-15, abs_tol=1e-6):
        return nearest or (1 if seconds else 0)
    return math.ceil(milliseconds)


def instant_to_ms(option: str, value: datetime) -> int:
    """Return an instant as milliseconds since 1970, rounded up.

    Raises TypeError for anything but a datetime, ValueError for one without a time zone or before 1970;
    both name the option and the value.
    """
    if not isinstance(value, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{option} must be a datetime, not {value!r}")
    if value.utcoffset() is None:
        raise ValueError(
            f"{option} must have a time zone, got {value!r}: use datetime.now(tz=UTC), or .astimezone() for local time"
        )
    milliseconds = -((_EPOCH - value) // _MILLISECOND)
    if milliseconds < 0:
        raise ValueError(f"{option} must not be before 1970, got {value!r}")
    return milliseconds


def from_ms(milliseconds: float) -> datetime:
    """Return the instant, in UTC, for a number of milliseconds since the start of 1970."""
    return _EPOCH + timedelta(milliseconds=milliseconds)
