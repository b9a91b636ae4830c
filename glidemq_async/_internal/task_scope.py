"""A task group for services that are started and closed by separate calls."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

HAS_EAGER_TASKS: Final = sys.version_info >= (3, 12)
"""True if `TaskScope.start_eagerly` takes the first step of a task."""


class TaskScope:
    """An asyncio.TaskGroup between `open` and `end`, which any task may call.

    A TaskGroup belongs to a block of code, and only the task that entered the block can leave it. A service has `start`
    and `close` instead, which users call from different tasks. So one task, the host, enters the group and waits in it
    for `end`. All other tasks are children of the group: if the host is cancelled, for example because `asyncio.run`
    ends, it cancels its children and waits for them. A child that raises an exception cancels the others. Services
    handle their own errors, so that happens only after a defect.

    `BackgroundTasks` is for the other components. It needs no `await` before its first task, so callbacks can start
    tasks. Its tasks are independent: one that fails does not cancel the others, and nothing cancels them with their
    owner's host.

    The children are asyncio tasks and not those of an anyio group, because they run handlers. A handler that is
    cancelled may await its own cleanup. An anyio scope would cancel each of these awaits again.
    """

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._host: asyncio.Task[None] | None = None
        self._entered = asyncio.Event()
        self._over = asyncio.Event()
        self._eager: set[asyncio.Task[Any]] = set()
        """The tasks of `start_eagerly` that wait."""

    @property
    def is_open(self) -> bool:
        """True if tasks can be started."""
        return self._group is not None and self._entered.is_set() and not self._is_cancelled()

    async def open(self) -> None:
        """Enter the group, unless it is open. A new group replaces a cancelled one, whose tasks may still be ending."""
        if self._group is None or self._is_cancelled():
            self._group, self._entered, self._over = asyncio.TaskGroup(), asyncio.Event(), asyncio.Event()
            self._eager = set()
            self._host = asyncio.create_task(_hold(self._group, self._entered, self._over, self._eager))
        await self._entered.wait()

    def start(self, work: Coroutine[Any, Any, _T], context: Context | None = None) -> asyncio.Task[_T]:
        """Run a coroutine as a child of the group. Raises RuntimeError if the group is not open."""
        if self._group is None:
            work.close()
            raise RuntimeError("the task scope is not open; call open() first")
        try:
            return self._group.create_task(work, context=context)
        except RuntimeError:  # it was cancelled
            work.close()
            raise

    def start_eagerly(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run a coroutine as a child, up to its first real wait before this method returns.

        Python 3.11 has no eager tasks. There the child begins in the next iteration of the loop.
        """
        if self._group is not None and sys.version_info >= (3, 12):
            # A group creates no eager tasks before Python 3.14, and adopts no task. So these tasks have another child
            # of the group as their owner, `_own`, which ends with them.
            task = asyncio.Task(work, loop=asyncio.get_running_loop(), eager_start=True)
            if not task.done():
                self._eager.add(task)
                task.add_done_callback(self._eager.discard)
            return task
        return self.start(work)

    def _is_cancelled(self) -> bool:
        """Return True if the group accepts no more tasks, because its host was cancelled or a child has failed."""
        return self._host is not None and (self._host.cancelling() > 0 or self._host.done())

    def end(self) -> None:
        """Leave the group. The host ends after the last child. `open` begins a new group."""
        self._over.set()
        self._group = None


async def _hold(
    group: asyncio.TaskGroup, entered: asyncio.Event, over: asyncio.Event, eager: set[asyncio.Task[Any]]
) -> None:
    async with group:
        group.create_task(_own(eager, over))
        entered.set()
        await over.wait()


async def _own(eager: set[asyncio.Task[Any]], over: asyncio.Event) -> None:
    """Own the eager tasks as the group owns its children: a cancellation reaches them, and the group waits for them."""
    try:
        await over.wait()
        while eager:
            await asyncio.wait(eager)
    except asyncio.CancelledError:
        for task in eager:
            task.cancel()
        while eager:
            await asyncio.wait(eager)
        raise
