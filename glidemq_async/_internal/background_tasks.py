"""The background tasks of a component that lives from `open` to `close`."""

# Code that starts and ends its tasks in one function uses a task group. The users of this class cannot: they start
# tasks in `open` and end them in `close`, and different tasks call the two methods (fixtures of tests, the lifespan of
# a web service, the first of several callers). asyncio requires that one task enters and leaves a group. A failed child
# would also cancel the task that called `open`, and that task belongs to the user.
#
# `TaskScope` uses a host task instead. Its user must await the host before the first child can start. The users of this
# class start tasks from callbacks, which cannot await.
#
# This class keeps two rules of a task group: no task outlives `close`, and no error disappears.
#
# A task that is cancelled before its first step runs none of its code, and so not its `finally`. `close` therefore lets
# each task begin. Code that cancels all tasks, as `asyncio.run` does at its end, does not. A component on whose tasks
# others wait uses the done callback of the task that `start` returns.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class BackgroundTasks:
    """Owns tasks that no caller awaits. `on_error` receives their exceptions. Without it, they are logged."""

    __slots__ = ("_on_error", "_tasks")

    def __init__(self, on_error: Callable[[BaseException], None] | None = None) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_error = on_error

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run a coroutine in the background of the current event loop."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def wait(self, seconds: float) -> None:
        """Wait for all tasks, and cancel the tasks that have not ended after `seconds`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        self.cancel()

    def cancel(self) -> None:
        """Cancel all tasks without waiting for them."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Let each task begin, cancel all tasks, and wait until they have ended. Idempotent."""
        try:
            if self._tasks:
                await asyncio.sleep(0)
        finally:
            self.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._on_error is not None:
            self._on_error(error)
        else:
            _log.error("a background task failed: %r", error, exc_info=error)
