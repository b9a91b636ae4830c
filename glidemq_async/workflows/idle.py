"""A check that a run only waits: all tasks for which its function waits are blocked by waits of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable
from types import FrameType
from typing import Any, Final, TypeAlias, cast

_Future: TypeAlias = "asyncio.Future[Any]"
_MOST_TASKS: Final = 10_000
"""Number of tasks after which the search gives up. The run then keeps its slot."""


# A run may be suspended only if nothing but a signal or a deadline can continue it. A run that waits for a reply of
# some other service outside of a step would lose it, so such a run keeps its slot.
#
# asyncio has no public way to ask what a task waits for. This module reads the future that blocks a task, and looks
# into the constructs of asyncio that wait for other tasks: `await task`, gather, TaskGroup, wait and wait_for. All
# others count as unknown. tests/unit/workflows/test_idle.py checks each of them on every version of Python.
def is_idle(task: asyncio.Task[Any], waits: Collection[_Future]) -> bool:
    """Return whether a task and the tasks for which it waits are blocked by these futures, and by nothing else."""
    left, seen = [task], set[asyncio.Task[Any]]()
    while left:
        one = left.pop()
        if one in seen or one.done():
            continue
        seen.add(one)
        blocking = _blocking(one, waits)
        if blocking is None or len(seen) > _MOST_TASKS:
            return False
        left += blocking
    return bool(seen)


def _blocking(task: asyncio.Task[Any], waits: Collection[_Future]) -> list[asyncio.Task[Any]] | None:
    """Return the tasks that block a task, none of them if one of `waits` does; None if something else may block it."""
    waiter = cast("_Future | None", getattr(task, "_fut_waiter", None))
    if waiter is None:  # it is about to run
        return None
    if waiter in waits:
        return []
    if isinstance(waiter, asyncio.Task):
        return [waiter]
    children = getattr(waiter, "_children", None)
    awaited = children if children is not None else _awaited(_innermost(task))
    return None if awaited is None else _as_tasks(awaited, waits)


def _as_tasks(futures: Iterable[_Future], waits: Collection[_Future]) -> list[asyncio.Task[Any]] | None:
    tasks: list[asyncio.Task[Any]] = []
    for future in futures:
        if isinstance(future, asyncio.Task):
            tasks.append(future)
        elif not future.done() and future not in waits:
            return None
    return tasks


def _innermost(task: asyncio.Task[Any]) -> FrameType | None:
    """Return the frame in which a task waits, None if it is not a frame of Python."""
    awaited: object = task.get_coro()
    frame: FrameType | None = None
    while isinstance(awaited, Coroutine):
        coroutine = cast("Any", awaited)
        frame, awaited = getattr(coroutine, "cr_frame", None), getattr(coroutine, "cr_await", None)
    return frame


def _awaited(frame: FrameType | None) -> Iterable[_Future] | None:
    """Return the futures for which a function of asyncio waits, None for any other function."""
    if frame is None:
        return None
    module, name = frame.f_globals.get("__name__"), frame.f_code.co_name
    if module == "asyncio.taskgroups" and name == "__aexit__":
        return cast("Iterable[_Future] | None", getattr(frame.f_locals.get("self"), "_tasks", None))
    if module == "asyncio.taskgroups" and name == "_aexit":  # Python 3.13
        return cast("Iterable[_Future] | None", getattr(frame.f_locals.get("self"), "_tasks", None))
    if module == "asyncio.tasks" and name == "_wait":
        return cast("Iterable[_Future] | None", frame.f_locals.get("fs"))
    if module == "asyncio.tasks" and name == "wait_for":  # Python 3.11
        waited = frame.f_locals.get("fut")
        return None if waited is None else [waited]
    return None
