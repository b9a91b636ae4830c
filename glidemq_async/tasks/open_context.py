"""Keeps an async context manager open in one task, because it must be left in the task that entered it."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from glidemq_async.jobs.context import set_current_job


# Cancel scopes and context variables of a context manager belong to the task that enters it. Here the job that needs a
# value first would enter it, and another job or the shutdown would leave it, in another task. anyio refuses that, and a
# cancelled first job would take the value away from all others. So a separate task enters the context manager, waits,
# and leaves it.
class OpenContext:
    """Enters a context manager in a separate task, and leaves it there on `close`.

    Other tasks can share the yielded value, even if the context manager contains cancel scopes.
    """

    def __init__(self, opening: AbstractAsyncContextManager[Any]) -> None:
        self._ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # The waiting task may have been cancelled, so mark the exception as retrieved.
        self._ready.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._hold_open(opening))
        # A task that is cancelled before its first step does not run `_hold_open`.
        self._task.add_done_callback(lambda _: self._ready.cancel())

    async def value(self) -> Any:
        """Return the yielded value when it is available. Raises the exceptions of entering."""
        # Shielded: a cancelled job must not cancel the value for the others that wait.
        return self._ready.result() if self._ready.done() else await asyncio.shield(self._ready)

    @property
    def has_failed(self) -> bool:
        """Return whether entering has failed."""
        return self._ready.done() and (self._ready.cancelled() or self._ready.exception() is not None)

    async def _hold_open(self, opening: AbstractAsyncContextManager[Any]) -> None:
        # The task inherits the context of the job that came first, but its value outlives that job.
        set_current_job(None)
        try:
            async with opening as value:
                self._ready.set_result(value)
                await self._closing.wait()
        except BaseException as error:
            if self._ready.done():
                raise
            if isinstance(error, asyncio.CancelledError):
                self._ready.cancel()
                raise
            self._ready.set_exception(error)

    async def close(self) -> None:
        """Leave the context manager, or cancel entering it. Raises the exceptions of leaving."""
        # A context manager that has not yielded yet is still being entered, and its task does not wait for `_closing`.
        if not self._ready.done():
            self._task.cancel()
        self._closing.set()
        await asyncio.wait([self._task])
        with suppress(asyncio.CancelledError):
            self._task.result()
