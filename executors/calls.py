"""Calls of functions with values, which every executor runs like a handler of a job."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


# An executor knows only handlers of one job. This class makes a call with arguments look like one, so that tasks need
# no second method in each executor.
@dataclass(frozen=True, slots=True)
class FunctionCall:
    """Calls `function` with the stored arguments `args` and `kwargs` instead of with a job."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __call__(self, job: object) -> Any:
        """Call the function. The job is a parameter only because executors pass it."""
        del job
        return self.function(*self.args, **self.kwargs)


def is_coroutine_function(handler: Callable[..., Any]) -> bool:
    """Return True for a coroutine function, an object with an async `__call__`, or a FunctionCall of either."""
    function = handler.function if isinstance(handler, FunctionCall) else handler
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ is a coroutine function too
    )
