"""Finding an executor by name: the built-in tiers, then what packages registered as entry points."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Final

from glidemq_async.executors.inline import InlineExecutor
from glidemq_async.executors.protocol import Executor
from glidemq_async.executors.thread import ThreadExecutor

GROUP: Final = "glidemq_async.executors"
BUILT_IN: Final = ("inline", "thread")


def open_executor(spec: str | Executor | None, handler: Callable[..., Any], concurrency: int) -> Executor:
    """Return the executor of a worker: the one given, the one of that name, or what fits the handler.

    An entry point of the group "glidemq_async.executors" is called with the concurrency. Raises ValueError for an
    unknown name, TypeError for a plain function on the inline executor, which would block the event loop.
    """
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__ is a coroutine function too
    )
    if spec is None:
        spec = "inline" if is_async else "thread"
    if not isinstance(spec, str):
        return spec
    if spec == "inline":
        if not is_async:
            raise TypeError(f"{handler!r} is a plain function, it would block the event loop: use executor='thread'")
        return InlineExecutor()
    if spec == "thread":
        if is_async:
            raise TypeError(f"{handler!r} is a coroutine function, threads run plain ones: use executor='inline'")
        return ThreadExecutor(concurrency)
    return _registered(spec, concurrency)


def _registered(name: str, concurrency: int) -> Executor:
    known = entry_points(group=GROUP)
    for found in known:
        if found.name == name:
            executor: Executor = found.load()(concurrency)
            return executor
    names = ", ".join([*BUILT_IN, *sorted(found.name for found in known)])
    raise ValueError(f"unknown executor {name!r}; the known ones are {names}")
