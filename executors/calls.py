"""A call of a function with values, which every executor runs as it runs a handler of a job."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """Calls `function` with its own arguments instead of with a job."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __call__(self, job: object) -> Any:
        """Call the function; the job is there for executors only."""
        del job
        return self.function(*self.args, **self.kwargs)


def is_coroutine_function(handler: Callable[..., Any]) -> bool:
    """Return whether a handler is a coroutine function, an object with an async `__call__`, or a call of either."""
    function = handler.function if isinstance(handler, FunctionCall) else handler
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ is a coroutine function too
    )
