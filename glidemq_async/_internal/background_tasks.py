"""The background tasks of a component that lives from `open` to `close`."""

# A task group is the better owner wherever one function contains the life of its tasks. It cannot be one here, because
# an `async with` block would have to begin in one method and end in another. A task group must be left in the task that
# entered it. Different tasks call `open` and `close` of a queue or of a storage, for example the fixtures of tests, the
# lifespan of web services, or the first of several callers. A failed child would also cancel the task that happened to
# call `open`, and that task belongs to the user.
#
# `TaskScope` solves this with a host task, which must be awaited before the first child can start. The components here
# start tasks from callbacks, for example for an accepted connection.
#
# This owner keeps the two rules of a task group that matter here: no task outlives `close`, and no error disappears.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

_log = logging.getLogger(__name__)


class BackgroundTasks:
    """Owns tasks that nobody awaits. `on_error` receives their exceptions, which are logged otherwise."""

    __slots__ = ("_on_error", "_tasks")

    def __init__(self, on_error: Callable[[BaseException], None] | None = None) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_error = on_error

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine in the background of the current event loop."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def wait(self, seconds: float) -> None:
        """Wait for all tasks, and cancel those that have not ended after `seconds`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        self.cancel()

    def cancel(self) -> None:
        """Cancel all tasks without waiting for them."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended. Idempotent."""
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
