"""A task group for services that are started and closed by separate calls."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

_T = TypeVar("_T")


class TaskScope:
    """An asyncio.TaskGroup between `open` and `end`, which any task may call.

    A TaskGroup belongs to a block of code, and only the task that entered the block can leave it. A service has `start`
    and `close` instead, which users call from different tasks. So one task, the host, enters the group and waits in it
    for `end`. All other tasks are children of the group: if the host is cancelled, for example because `asyncio.run`
    ends, it cancels its children and waits for them. A child that raises an exception cancels the others. Services
    handle their own errors, so that happens only after a defect.

    The children are asyncio tasks and not those of an anyio group, because they run handlers. A handler that is
    cancelled may await its own cleanup. An anyio scope would cancel each of these awaits again.
    """

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._host: asyncio.Task[None] | None = None
        self._entered = asyncio.Event()
        self._over = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """True if tasks can be started."""
        return self._group is not None and self._entered.is_set()

    async def open(self) -> None:
        """Enter the group, unless it is open."""
        if self._group is None:
            self._group, self._entered, self._over = asyncio.TaskGroup(), asyncio.Event(), asyncio.Event()
            self._host = asyncio.create_task(_hold(self._group, self._entered, self._over))
        await self._entered.wait()

    def start(self, work: Coroutine[Any, Any, _T], context: Context | None = None) -> asyncio.Task[_T]:
        """Run a coroutine as a child of the group. Raises RuntimeError if the group is not open."""
        if self._group is None:
            work.close()
            raise RuntimeError("the task scope is not open; call open() first")
        return self._group.create_task(work, context=context)

    def end(self) -> None:
        """Leave the group. The host ends after the last child. `open` begins a new group."""
        self._over.set()
        self._group = None


async def _hold(group: asyncio.TaskGroup, entered: asyncio.Event, over: asyncio.Event) -> None:
    async with group:
        entered.set()
        await over.wait()
