"""Functions that compute the ordering key of a job from the arguments of its task."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any, Final, TypeAlias, cast

from glidemq_async.options.job_options import JobOptions, explicit, merge
from glidemq_async.tasks.arguments import Arguments, comes_after

KeyFunction: TypeAlias = "Callable[..., str | None]"
"""A function of a task's arguments, by name and with their defaults, that returns the ordering key of a job."""

_ANY: Final = "any_other_argument"


class KeyOfCall:
    """Computes the key of each job of a task. Raises TypeError unless the function can take the task's arguments."""

    def __init__(self, task: str, function: KeyFunction, parameters: Mapping[str, Parameter]) -> None:
        self._task = task
        self._function = function
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"task {task!r}: key= must be a plain function, because each add calls it")
        samples: dict[str, Any] = dict.fromkeys(parameters)
        for each in parameters.values():
            if each.kind is Parameter.VAR_POSITIONAL:
                samples[each.name] = (None,)
            elif each.kind is Parameter.VAR_KEYWORD:
                samples[each.name] = {_ANY: None}
        args, kwargs = _split(parameters, samples)
        try:
            self._signature: Signature = inspect.signature(function)
            self._signature.bind(*args, **kwargs)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"task {task!r}: the function of key= cannot take the arguments ({', '.join(parameters)}): {error}; "
                "it gets all of them, so name the needed ones and add **_, as in key=lambda tenant, **_: tenant"
            ) from None

    def options(self, options: JobOptions, arguments: Arguments, data: dict[str, Any]) -> JobOptions:
        """Return the options of a stored call with its key, unless they have one. Raises TypeError or ValueError."""
        if "key" in explicit(options):
            return options
        args, kwargs = _split(arguments.signature.parameters, arguments.known(data))
        if comes_after(data):
            self._check_known(args, kwargs)
        key = cast("object", self._function(*args, **kwargs))
        if key is None:
            return options
        if not isinstance(key, str):
            raise TypeError(f"task {self._task!r}: the function of key= must return a str or None, not {key!r}")
        return merge(options, {"key": key})

    def _check_known(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(
                f"task {self._task!r}: the first argument is the result of another job, which has not ended, so the "
                f"function of key= cannot be called: {error}; pass the key as .options(key=...)"
            ) from None


def _split(parameters: Mapping[str, Parameter], values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments for a call by name, without arguments that can only be passed by position."""
    has_rest = any(each.kind is Parameter.VAR_POSITIONAL for each in parameters.values())
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, value in values.items():
        kind = parameters[name].kind
        if kind is Parameter.VAR_POSITIONAL:
            args.extend(value)
        elif kind is Parameter.VAR_KEYWORD:
            kwargs.update(value)
        elif kind is Parameter.POSITIONAL_ONLY or (has_rest and kind is Parameter.POSITIONAL_OR_KEYWORD):
            args.append(value)
        else:
            kwargs[name] = value
    return args, kwargs
