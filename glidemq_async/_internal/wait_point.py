"""Points at which a task waits until a callback of its event loop continues it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Final, Self, TypeAlias

_Resume: TypeAlias = Callable[[Any], object]


# A future resumes its task in the next iteration of the loop. An idle process needs 30 us for that iteration, because
# its code is not in the caches of the processor any more. `resume` continues the task inside of the caller instead.
#
# This class implements the protocol by which a task waits for an object that is not an asyncio.Future: the task sees
# the attribute `_asyncio_future_blocking`, and passes its own callback to `add_done_callback`. Calling that callback
# is a step of the task. Tasks must not be nested, so only code outside of every task may call `resume`: the methods of
# a protocol, and the callbacks of `call_soon` and `call_later`.
class WaitPoint:
    """One wait of one task at a time: `await point`."""

    __slots__ = ("_asyncio_future_blocking", "_context", "_loop", "_reason", "_step", "is_cancelled")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop: Final = loop
        self._step: _Resume | None = None
        self._context: Context | None = None
        self._reason: object = None
        self.is_cancelled = False
        """True if the task was cancelled in its last wait, before anything had resumed it."""

    @property
    def is_waiting(self) -> bool:
        """True while a task waits here and nothing has resumed it."""
        return self._step is not None

    def resume(self) -> None:
        """Continue the task up to its next wait. Only outside of every task, and only while a task waits.

        Raises KeyboardInterrupt or SystemExit if the task raises it, as a callback of the loop does.
        """
        step, context = self._taken()
        context.run(step, self)

    def resume_soon(self) -> None:
        """Continue the task in the next iteration of the loop. Only while a task waits."""
        step, context = self._taken()
        self._loop.call_soon(step, self, context=context)

    def _taken(self) -> tuple[_Resume, Context]:
        step, context = self._step, self._context
        assert step is not None and context is not None  # noqa: S101, PT018 - a task waits
        self._step = self._context = None
        return step, context

    def __await__(self) -> Generator[Self]:
        self._asyncio_future_blocking = True
        yield self

    # -- called by the task -----------------------------------------------------------------------------------------

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the task."""
        return self._loop

    def add_done_callback(self, step: _Resume, *, context: Context) -> None:
        """Keep the function that continues the task."""
        self._step, self._context, self.is_cancelled = step, context, False

    def cancel(self, msg: object = None) -> bool:
        """Cancel the wait. Return False if the task has been resumed."""
        if self._step is None:
            return False
        self.is_cancelled, self._reason = True, msg
        self.resume_soon()
        return True

    def result(self) -> None:
        """Raise CancelledError if the wait was cancelled."""
        if self.is_cancelled:
            raise asyncio.CancelledError(*(() if self._reason is None else (self._reason,)))


def raise_soon(error: BaseException) -> None:
    """Raise the KeyboardInterrupt or SystemExit of a task in a separate callback, so that it ends the loop.

    For code that resumes a task in a method of a protocol: uvloop would take the error for one of the connection.
    """
    asyncio.get_running_loop().call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error


class TaskEvent:
    """An event for which one task waits. It may continue inside of the caller."""

    __slots__ = ("_is_set", "_point")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._point: Final = WaitPoint(loop)
        self._is_set = False

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return self._is_set

    def set(self) -> None:
        """Set the event. A task that waits continues in the next iteration of the loop."""
        self._is_set = True
        if self._point.is_waiting:
            self._point.resume_soon()

    def clear(self) -> None:
        """Reset the event."""
        self._is_set = False

    def resume(self) -> None:
        """Continue the task up to its next wait, as `WaitPoint.resume` does. If it does not wait, set the event."""
        if self._point.is_waiting:
            self._point.resume()
        else:
            self._is_set = True

    async def wait(self) -> None:
        """Wait until the event is set or `resume` is called. Only for one task."""
        if not self._is_set:
            await self._point
