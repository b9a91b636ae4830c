"""Work that several callers wait for together, such as opening a connection that all of them need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

_T = TypeVar("_T")


class SharedAttempt(Generic[_T]):
    """Runs one attempt at a time and gives its outcome to every waiting caller.

    A cancelled caller leaves the attempt to the others. `purpose` completes "while it ...".
    """

    def __init__(self, make: Callable[[], Coroutine[None, None, _T]], purpose: str) -> None:
        self._make = make
        self._purpose = purpose
        self._task: asyncio.Task[_T] | None = None
        self._closed = False

    @property
    def under_way(self) -> bool:
        """True while an attempt runs."""
        return self._task is not None

    def start(self) -> asyncio.Task[_T]:
        """Begin an attempt, or return the one that runs."""
        if self._task is None:
            # The task belongs to no caller: it must survive the cancellation of the caller that happened to come first.
            # `_finished` is its first callback, so it runs before any waiting caller continues. A caller that tries
            # again after a failure therefore starts a new attempt and never gets the failure of the old one a second
            # time.
            self._task = asyncio.ensure_future(self._make())
            self._task.add_done_callback(self._finished)
        return self._task

    async def outcome(self) -> _T:
        """Wait for the running attempt, or make one. Raises `ConnectionAbortedError` after it was closed."""
        if self._closed:
            raise self._aborted()
        task = self.start()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # Two things end this wait with CancelledError: `cancel` ended the attempt, or other code cancelled the
            # caller. CancelledError may leave this method only in the second case. In the first case a TaskGroup
            # around the caller would treat its task as cancelled and drop it without any error.
            if task.cancelled() and not _is_cancelled():
                raise self._aborted() from None
            raise

    def cancel(self) -> None:
        """End the current attempt and refuse further ones. Its callers get `ConnectionAbortedError`."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Do what `cancel` does, and wait until the attempt has ended."""
        self.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _finished(self, task: asyncio.Task[_T]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # retrieved here, because every caller may have been cancelled

    def _aborted(self) -> ConnectionAbortedError:
        return ConnectionAbortedError(f"the storage was closed while it {self._purpose}")


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
