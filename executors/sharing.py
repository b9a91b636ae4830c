"""Executors that several workers share. The first worker starts the executor, and the last one stops it."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable

from glidemq_async.executors.protocol import Executor, MayBreak


class _SharedExecutor:
    """An executor in its event loop, and the workers that use it. It runs while it has users."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.loop = asyncio.get_running_loop()
        self.users: dict[ExecutorUse, Callable[[], None]] = {}
        self.changing = asyncio.Lock()

    async def start(self) -> None:
        if isinstance(self.executor, MayBreak):
            self.executor.when_broken(self.notify_broken)
        await self.executor.start(self.notify_freed)

    def notify_freed(self) -> None:
        for freed in tuple(self.users.values()):
            freed()

    def notify_broken(self, error: Exception) -> None:
        # Only workers that use it now. One that has closed must not report the error, and one that has not started
        # notices it at its start, or by its first job.
        for use in tuple(self.users):
            use.report_broken(error)


_in_use: weakref.WeakValueDictionary[int, _SharedExecutor] = weakref.WeakValueDictionary()


def _shared_of(executor: Executor) -> _SharedExecutor:
    # By identity: two equal executors are still two pools. The entry refers to its executor, so the id cannot be
    # reused, and disappears with the last ExecutorUse that refers to it. A closed event loop cannot stop its executor
    # any more, so its entry does not count.
    use = _in_use.get(id(executor))
    if use is not None and use.loop is not asyncio.get_running_loop():
        if not use.loop.is_closed() and (use.users or use.changing.locked()):
            raise RuntimeError(f"{executor!r} is in use in another event loop; create one executor for each loop")
        use = None
    if use is None:
        use = _in_use[id(executor)] = _SharedExecutor(executor)
    return use


class ExecutorUse:
    """The use of an executor by one worker. Other workers may use it at the same time.

    `report_broken` is called during the use if the executor cannot run jobs any more; see `MayBreak`.
    """

    def __init__(self, executor: Executor, report_broken: Callable[[Exception], None]) -> None:
        self.executor = executor
        self.report_broken = report_broken
        self._shared: _SharedExecutor | None = None

    async def start(self, freed: Callable[[], None]) -> None:
        """Start the executor unless it runs; idempotent. Raises any error of its start, and is not a user then.

        Raises RuntimeError if the executor is in use in another event loop.
        """
        use = _shared_of(self.executor)
        # A worker that starts while the last one stops must wait for the complete stop, and start the executor again.
        async with use.changing:
            if not use.users:
                await use.start()
            use.users[self] = freed
            self._shared = use

    async def stop(self, grace: float) -> None:
        """End the use, and stop the executor after its last user. Does nothing if it was not started."""
        use, self._shared = self._shared, None
        if use is None:
            return
        async with use.changing:
            del use.users[self]
            if not use.users:
                await self.executor.stop(grace)


if hasattr(os, "register_at_fork"):
    # Executors that ran in the parent do not run in a forked child.
    os.register_at_fork(after_in_child=_in_use.clear)
