"""Detects calls of a job's coroutine methods in plain functions, which cannot await them.

`job.update_progress(5)` in a thread only creates a coroutine and sends nothing. Executors collect such calls around a
plain function, and fail its job with advice instead of losing the call.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Calls: TypeAlias = list[tuple[str, Coroutine[Any, Any, Any]]]

_calls: Final[ContextVar[Calls | None]] = ContextVar("glidemq_calls", default=None)
_OWN_REFERENCES: Final = 3
"""References to a coroutine that this module itself holds: the list, the loop variable, and the argument."""


def noted(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Report the calls of a coroutine method to `call_plainly`. A decorator for methods of Job."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        coroutine = method(*args, **kwargs)
        calls = _calls.get()
        if calls is not None and not _loop_runs():
            calls.append((method.__name__, coroutine))
        return coroutine

    return call


def call_plainly(function: Callable[..., T], *args: object) -> T:
    """Call a plain function. Raises TypeError, with advice, if it has not awaited a coroutine of its job.

    Used by executors, in the context of a run.
    """
    calls: Calls = []
    _calls.set(calls)
    value = function(*args)
    for name, coroutine in calls:
        # A coroutine with another reference may still run, for example one that was passed to run_coroutine_threadsafe.
        is_forgotten = inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
        if is_forgotten and sys.getrefcount(coroutine) <= _OWN_REFERENCES:
            coroutine.close()
            raise TypeError(
                f"job.{name}(...) was called without await in a plain function, so nothing was sent; "
                f"call job.sync.{name}(...)"
            )
    return value


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
