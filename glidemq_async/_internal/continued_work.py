"""Work that its caller awaits, and that a task continues if the caller is cancelled."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, Final, Generic, TypeVar

from glidemq_async._internal.wait_point import WaitPoint

_T = TypeVar("_T")


# `asyncio.shield` of a task does the same. But the task takes its first step in the next iteration of the loop, and its
# result reaches the caller two iterations after its last step. Here the task of the caller takes the steps.
#
# The caller waits at a separate point and not at the future of the work. So its cancellation does not reach the future,
# and a task continues the work. A timeout, a task group and a cancel scope belong to one task, and the steps before and
# after that belong to two tasks. So the caller takes only the first two steps. A task takes all steps after an error,
# because a repeated call has timeouts, and all steps after a second wait.
class ContinuedWork(Generic[_T]):
    """A coroutine for one `await`. Its first step waits for a future, or ends, and needs no task."""

    __slots__ = ("_point", "_work", "rest")

    def __init__(self, work: Coroutine[Any, Any, _T]) -> None:
        self._work = work
        self._point: Final = WaitPoint(asyncio.get_running_loop())
        self.rest: asyncio.Task[_T] | None = None
        """The task that continues the work, None if the caller did all of it."""

    def __await__(self) -> Generator[Any, Any, _T]:
        try:
            future: asyncio.Future[object] = self._work.send(None)
        except StopIteration as end:
            result: _T = end.value
            return result
        future.add_done_callback(self._on_done)
        try:
            yield from self._point.__await__()
        except asyncio.CancelledError:
            self._hand_over(future)
            raise
        if future.cancelled() or future.exception() is not None or isinstance(future.result(), Exception):
            return (yield from asyncio.shield(self._hand_over(future)).__await__())
        try:
            waits_for: asyncio.Future[object] = self._work.send(None)
        except StopIteration as end:
            result = end.value
            return result
        return (yield from asyncio.shield(self._hand_over(waits_for)).__await__())

    def _on_done(self, _future: asyncio.Future[object]) -> None:
        if self._point.is_waiting:
            self._point.resume()

    def _hand_over(self, waits_for: asyncio.Future[object]) -> asyncio.Task[_T]:
        self.rest = asyncio.create_task(_finish(self._work, waits_for))
        return self.rest


async def _finish(work: Coroutine[Any, Any, _T], waits_for: asyncio.Future[object]) -> _T:
    return await _continue(work, waits_for)


@types.coroutine
def _continue(work: Coroutine[Any, Any, _T], waits_for: asyncio.Future[object]) -> Generator[Any, Any, _T]:
    """Take the steps of a coroutine that waits for a future."""
    # A task accepts a future only with this mark, which `await future` has set and `ContinuedWork` has not removed.
    waits_for._asyncio_future_blocking = True  # noqa: SLF001
    while True:
        failure: BaseException | None = None
        try:
            yield waits_for
        except BaseException as error:  # noqa: BLE001 - the work decides what it means
            failure = error
        try:
            waits_for = work.send(None) if failure is None else work.throw(failure)
        except StopIteration as end:
            result: _T = end.value
            return result
