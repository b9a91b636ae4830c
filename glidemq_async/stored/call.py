"""The stored form of a call of a task: `{"a": [positional arguments], "k": {name: argument}}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

TaskParameters: TypeAlias = Mapping[str, Sequence[str]]
"""The names of the positional parameters of each task, by the name of the task."""

_CALL: Final = frozenset({"a", "k"})
_CALL_AFTER: Final = frozenset({"after", "rest", "k"})


def named_call(data: object, parameters: Sequence[str] | None = None) -> object:
    """Return the arguments of a stored call by name. Other data are returned unchanged.

    An argument without a known name is called `#1`, `#2` and so on by its position.
    """
    if not isinstance(data, dict):
        return data
    call = cast("dict[str, Any]", data)
    if call.keys() == _CALL:
        return _named(call["a"], call["k"], 0, parameters, call)
    if call.keys() == _CALL_AFTER:
        # The first argument is the result of an earlier job of a flow.
        return _named(call["rest"], call["k"], 1, parameters, call)
    return call


def _named(args: object, kwargs: object, first: int, parameters: Sequence[str] | None, call: dict[str, Any]) -> object:
    if not isinstance(args, list | tuple) or not isinstance(kwargs, dict):
        return call
    names = parameters or ()
    named = {
        names[place] if place < len(names) else f"#{place + 1}": value
        for place, value in enumerate(cast("Sequence[Any]", args), first)
    }
    return named | cast("dict[str, Any]", kwargs)


def is_call(data: object) -> bool:
    """Return whether data are the stored call of a task."""
    if not isinstance(data, Mapping):
        return False
    call = cast("Mapping[str, object]", data)
    names = frozenset(call)
    if names not in {_CALL, _CALL_AFTER}:
        return False
    return isinstance(call["a" if names == _CALL else "rest"], list | tuple) and isinstance(call["k"], Mapping)


def changed_call(data: object, changes: object, parameters: Sequence[str] | None = None) -> object:
    """Return data with changes: the arguments of a stored call by name, the items of a mapping, or a whole new value.

    Raises TypeError if the changes of a stored call are not arguments by name.
    """
    if not isinstance(data, dict):
        return changes
    call = cast("dict[str, Any]", data)
    if call.keys() != _CALL and call.keys() != _CALL_AFTER:
        return {**call, **cast("dict[str, Any]", changes)} if isinstance(changes, Mapping) else changes
    if not isinstance(changes, Mapping):
        raise TypeError(f"the data of a task are its arguments by name, not {changes!r}")
    first, field = (0, "a") if "a" in call else (1, "rest")
    args, keywords = [*call[field]], {**call["k"]}
    names = {
        (parameters or ())[place] if place < len(parameters or ()) else f"#{place + 1}": place - first
        for place in range(first, first + len(args))
    }
    for name, value in cast("Mapping[str, Any]", changes).items():
        if name in names:
            args[names[name]] = value
        else:
            keywords[name] = value
    return {**call, field: args, "k": keywords}
