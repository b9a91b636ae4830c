"""The annotations of a class's fields, with the arguments of generic classes in the place of their type variables."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar, cast, get_args, get_origin, get_type_hints


def field_hints(kind: type, args: Sequence[Any]) -> dict[str, Any]:
    """Return the annotations of all fields, inherited ones too. Raises NameError for one that names nothing."""
    return _hints(kind, args, get_type_hints(kind, include_extras=True))


def _hints(kind: type, args: Sequence[Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    bound = dict(zip(getattr(kind, "__parameters__", ()), args, strict=False))
    found: dict[str, Any] = {}
    for base in reversed(kind.__dict__.get("__orig_bases__", kind.__bases__)):
        above: Any = get_origin(base) or base
        # Each class has type variables of its own, which may be the same objects.
        if isinstance(above, type) and above not in (object, Generic, Protocol):
            inherited = [_with(each, bound) for each in get_args(base)]
            found |= _hints(above, inherited, get_type_hints(above, include_extras=True))
    own = inspect.get_annotations(kind)
    return found | {name: _with(whole[name], bound) for name in own if name in whole}


def _with(hint: Any, bound: Mapping[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return bound.get(hint, hint)
    if get_origin(hint) is not None and (free := cast("Sequence[Any]", getattr(hint, "__parameters__", ()))):
        with suppress(TypeError):  # of parameters of functions and the like, which no field is stored by
            return hint[tuple(bound.get(each, each) for each in free)]
    return hint
