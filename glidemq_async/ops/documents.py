"""Documents: values as JSON, the same for HTTP, the command line and other faces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from math import isfinite
from typing import Any, Final, TypeAlias, cast

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"
PLAIN_TYPES: Final[frozenset[type[Any]]] = frozenset({str, int, bool, type(None)})
"""The types of values that are JSON already."""


def as_document(value: object) -> JsonValue:
    """Return a value that `json.dumps` accepts.

    An instant becomes ISO 8601 in UTC with a Z, a duration becomes seconds, a dataclass becomes a dict of its fields.
    A value that JSON does not have, such as a UUID, becomes its text.
    """
    # The types are compared first, because an overview of many queues has a hundred thousand values.
    if type(value) in PLAIN_TYPES:
        return cast("JsonValue", value)
    if isinstance(value, Enum):
        return as_document(value.value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)  # JSON has no infinity
    if isinstance(value, str | int):
        return value
    if isinstance(value, datetime):
        return _instant(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if is_dataclass(value) and not isinstance(value, type):
        return {name: as_document(getattr(value, name)) for name in _field_names(type(value))}
    return _collection(value)


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _collection(value: object) -> JsonValue:
    if isinstance(value, Mapping):
        return {str(key): as_document(each) for key, each in cast("Mapping[object, object]", value).items()}
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Sequence):
        items = cast("Sequence[object]", value)
        return [cast("JsonValue", each) if type(each) in PLAIN_TYPES else as_document(each) for each in items]
    if isinstance(value, AbstractSet):
        return [as_document(each) for each in sorted(cast("AbstractSet[object]", value), key=repr)]
    return str(value)


def _instant(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat()  # an instant of a payload, whose zone is unknown
    # Stored instants have milliseconds. An instant of a payload may have microseconds, and keeps them.
    has_milliseconds = value.microsecond and value.microsecond % 1000 == 0
    text = value.astimezone(UTC).isoformat(timespec="milliseconds" if has_milliseconds else "auto")
    return text.replace("+00:00", "Z")
