"""Finds the value that cannot be encoded inside a payload, the cause, and a remedy.

It runs only after encoding has failed, so it may be slow. It never recurses, so deep values are safe.
"""

from __future__ import annotations

import dataclasses
import math
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Final, NamedTuple, TypeAlias, cast
from uuid import UUID

__all__ = ["JSON", "MSGPACK", "Fault", "Form", "locate"]

#: The path to the value, and the reason why it cannot be encoded.
Fault: TypeAlias = tuple[str, str]

_MAX_DEPTH: Final = 1024


class Form(NamedTuple):
    """The types that one encoding accepts."""

    scalars: tuple[type, ...]
    keys: tuple[type, ...]
    ints: tuple[float, float]
    finite: bool
    enums: bool
    """True if an Enum is encoded as its value."""


_EXTENSIONS: Final = (date, time, timedelta, Decimal, UUID)
MSGPACK: Final = Form(
    scalars=(type(None), bool, int, float, str, bytes, bytearray, memoryview, *_EXTENSIONS),
    keys=(type(None), bool, int, float, str, bytes, *_EXTENSIONS),
    ints=(-(2**63), 2**64 - 1),
    finite=False,
    enums=True,
)
JSON: Final = Form(
    scalars=(type(None), bool, int, float, str),
    keys=(type(None), bool, int, float, str),
    ints=(-math.inf, math.inf),
    finite=True,
    enums=False,
)

_HINTS: Final[tuple[tuple[tuple[type, ...], str], ...]] = (
    ((date, time), "send value.isoformat()"),
    ((timedelta,), "send value.total_seconds()"),
    ((Decimal, UUID, PurePath), "send str(value)"),
    ((set, frozenset), "send a list"),
    ((Enum,), "send value.value"),
    ((bytes, bytearray, memoryview), "send it as base64 text, or use MsgpackSerializer"),
)


def locate(root: object, form: Form) -> Fault | None:
    """Return the first value that `form` does not accept, or None if all are accepted."""
    # A list and not recursion: the value may be nested too deeply, or contain itself.
    pending: list[tuple[object, str, int]] = [(root, "$", 0)]
    while pending:
        value, path, depth = pending.pop()
        if depth > _MAX_DEPTH:
            return path[:60] + "…", "it is nested too deeply, or contains itself"
        if form.enums and isinstance(value, Enum):
            value = value.value
        if reason := _fault_of(value, form):
            return path, reason
        pending.extend(reversed(_children(value, path, depth + 1)))
    return None


def _children(value: object, path: str, depth: int) -> list[tuple[object, str, int]]:
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value)
        return [(child, path + _step(key), depth) for key, child in entries.items()]
    if isinstance(value, (list, tuple)):
        members = cast("list[object] | tuple[object, ...]", value)
        return [(child, f"{path}[{index}]", depth) for index, child in enumerate(members)]
    return []


def _fault_of(value: object, form: Form) -> str | None:
    if isinstance(value, dict):
        return _fault_of_keys(cast("dict[object, object]", value), form)
    if isinstance(value, (list, tuple)):
        return None
    if not isinstance(value, form.scalars):
        name = _type_name(value)
        return f"found {'an' if name[0] in 'aeiou' else 'a'} {name}; {_hint(value)}"
    return _fault_of_scalar(value, form)


def _fault_of_keys(entries: dict[object, object], form: Form) -> str | None:
    for entry in entries:
        key = entry.value if form.enums and isinstance(entry, Enum) else entry
        if not isinstance(key, form.keys):
            names = ", ".join(kind.__name__ for kind in form.keys)
            return f"it has the key {_shown(key)}, a {_type_name(key)}; use one of {names}"
        if reason := _fault_of_scalar(key, form):
            return f"it has the key {_shown(key)}: {reason}"
    return None


def _fault_of_scalar(value: object, form: Form) -> str | None:
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        return "found a str with a lone surrogate, which has no UTF-8 form; send bytes or clean the text"
    if isinstance(value, int) and not form.ints[0] <= value <= form.ints[1]:
        return f"found an int of {value.bit_length()} bits, more than 64; send str(value)"
    if isinstance(value, float) and form.finite and not math.isfinite(value):
        return f"found the float {value}, which JSON does not have; send None, or use MsgpackSerializer"
    return None


def _hint(value: object) -> str:
    for kinds, hint in _HINTS:
        if isinstance(value, kinds):
            return hint
    if dataclasses.is_dataclass(value):
        return "send dataclasses.asdict(value)"
    if hasattr(value, "model_dump"):
        return 'send value.model_dump(mode="json")'
    return "send plain values instead, or give the queue a serializer of your own"


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _step(key: object) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f".{key}"
    return f"[{_shown(key)}]"


def _shown(key: object) -> str:
    text = repr(key)
    return text if len(text) <= 40 else text[:39] + "…"
