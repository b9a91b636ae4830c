"""The annotations of a class's fields, with type variables replaced by the arguments of a generic class."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar, cast, get_args, get_origin, get_type_hints


def field_hints(kind: type, args: Sequence[Any]) -> dict[str, Any]:
    """Return the annotations of all fields, including inherited ones. Raises NameError if one cannot be resolved."""
    return _hints(kind, args, get_type_hints(kind, include_extras=True))


def _hints(kind: type, args: Sequence[Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    bound = dict(zip(getattr(kind, "__parameters__", ()), args, strict=False))
    found: dict[str, Any] = {}
    for base in reversed(kind.__dict__.get("__orig_bases__", kind.__bases__)):
        above: Any = get_origin(base) or base
        # The type variables of two classes may be the same objects, so substitute class by class.
        if isinstance(above, type) and above not in (object, Generic, Protocol):
            inherited = [_with(each, bound) for each in get_args(base)]
            found |= _hints(above, inherited, get_type_hints(above, include_extras=True))
    own = inspect.get_annotations(kind)
    return found | {name: _with(whole[name], bound) for name in own if name in whole}


def _with(hint: Any, bound: Mapping[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return bound.get(hint, hint)
    if get_origin(hint) is not None and (free := cast("Sequence[Any]", getattr(hint, "__parameters__", ()))):
        with suppress(TypeError):  # annotations that cannot be substituted, for example ParamSpec, are never stored
            return hint[tuple(bound.get(each, each) for each in free)]
    return hint
