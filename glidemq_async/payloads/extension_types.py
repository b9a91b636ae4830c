"""The msgpack extension types of payloads: dates, times, decimals and UUIDs.

The codes are stored in queues, so the meaning of a code must never change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

__all__ = ["from_extension", "to_extension"]

_DATETIME: Final = 1
_DATE: Final = 2
_TIME: Final = 3
_TIMEDELTA: Final = 4
_DECIMAL: Final = 5
_UUID: Final = 6
# Appended to the ISO text of the second of two equal local times when the clock is set back.
_FOLD: Final = "~"


def to_extension(value: object) -> tuple[int, bytes] | None:
    """Return the code and bytes of a value of these types or their subclasses; None for any other value."""
    # Call the methods of the base class, because a subclass may override them. A datetime is also a date.
    if isinstance(value, datetime):
        return _DATETIME, (datetime.isoformat(value) + (_FOLD if value.fold else "")).encode()
    if isinstance(value, date):
        return _DATE, date.isoformat(value).encode()
    if isinstance(value, time):
        return _TIME, (time.isoformat(value) + (_FOLD if value.fold else "")).encode()
    if isinstance(value, timedelta):
        return _TIMEDELTA, b"%d %d %d" % (value.days, value.seconds, value.microseconds)
    if isinstance(value, Decimal):
        return _DECIMAL, Decimal.__str__(value).encode()
    if isinstance(value, UUID):
        return _UUID, value.bytes
    return None


def from_extension(code: int, data: bytes) -> object:
    """Decode the result of `to_extension`. Raises ValueError for other bytes."""
    read = _READERS.get(code)
    if read is None:
        raise ValueError(f"extension type {code} is unknown here: a newer version, or another program, wrote it")
    try:
        return read(data)
    # Decimal raises ArithmeticError. OverflowError, for a duration out of range, is a subclass of it.
    except (ValueError, ArithmeticError, TypeError) as error:
        raise ValueError(f"extension type {code} contains invalid data") from error


def _datetime(data: bytes) -> datetime:
    text = data.decode()
    return datetime.fromisoformat(text.removesuffix(_FOLD)).replace(fold=text.endswith(_FOLD))


def _time(data: bytes) -> time:
    text = data.decode()
    return time.fromisoformat(text.removesuffix(_FOLD)).replace(fold=text.endswith(_FOLD))


def _timedelta(data: bytes) -> timedelta:
    days, seconds, microseconds = map(int, data.split(b" "))
    return timedelta(days, seconds, microseconds)


_READERS: Final[Mapping[int, Callable[[bytes], object]]] = {
    _DATETIME: _datetime,
    _DATE: lambda data: date.fromisoformat(data.decode()),
    _TIME: _time,
    _TIMEDELTA: _timedelta,
    _DECIMAL: lambda data: Decimal(data.decode()),
    _UUID: lambda data: UUID(bytes=data),
}
