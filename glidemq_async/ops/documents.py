"""Documents: values as JSON, the same for HTTP, the command line and other faces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from math import isfinite
from typing import TypeAlias, cast

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"


def as_document(value: object) -> JsonValue:
    """Return a value that `json.dumps` accepts.

    An instant becomes ISO 8601 in UTC with a Z, a duration becomes seconds, a dataclass becomes a dict of its fields.
    A value that JSON does not have, such as a UUID, becomes its text.
    """
    if isinstance(value, Enum):
        return as_document(value.value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)  # JSON has no infinity
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, datetime):
        return _instant(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_document(getattr(value, field.name)) for field in fields(value)}
    return _collection(value)


def _collection(value: object) -> JsonValue:
    if isinstance(value, Mapping):
        return {str(key): as_document(each) for key, each in cast("Mapping[object, object]", value).items()}
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Sequence):
        return [as_document(each) for each in cast("Sequence[object]", value)]
    if isinstance(value, AbstractSet):
        return [as_document(each) for each in sorted(cast("AbstractSet[object]", value), key=repr)]
    return str(value)


def _instant(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat()  # an instant of a payload, whose zone is unknown
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
