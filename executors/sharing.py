"""Executors that several workers were given: each is started for the first of them and stopped after the last."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable

from glidemq_async.executors.protocol import Executor


class _Use:
    """An executor in its loop, and who uses it: it runs for as long as anybody does."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.loop = asyncio.get_running_loop()
        self.users: dict[Hold, Callable[[], None]] = {}
        self.changing = asyncio.Lock()

    def tell_freed(self) -> None:
        for freed in tuple(self.users.values()):
            freed()


_in_use: weakref.WeakValueDictionary[int, _Use] = weakref.WeakValueDictionary()


def _use_of(executor: Executor) -> _Use:
    use = _in_use.get(id(executor))
    if use is not None and use.loop is not asyncio.get_running_loop():
        if not use.loop.is_closed() and (use.users or use.changing.locked()):
            raise RuntimeError(f"asked to start {executor!r}, found it in use in another event loop: make one for each")
        use = None
    if use is None:
        use = _in_use[id(executor)] = _Use(executor)
    return use


class Hold:
    """One worker's hold on an executor, which others may hold as well."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._use: _Use | None = None

    async def start(self, freed: Callable[[], None]) -> None:
        """Start the executor unless it runs; idempotent. Raises what its start raises, and then holds nothing.

        RuntimeError when somebody uses it in another event loop.
        """
        use = _use_of(self.executor)
        async with use.changing:
            if not use.users:
                await self.executor.start(use.tell_freed)
            use.users[self] = freed
            self._use = use

    async def stop(self, grace: float) -> None:
        """Let go, and stop the executor if nobody else holds it; nothing happens to what was not started."""
        use, self._use = self._use, None
        if use is None:
            return
        async with use.changing:
            del use.users[self]
            if not use.users:
                await self.executor.stop(grace)


if hasattr(os, "register_at_fork"):
    # What ran in the parent does not run in a child.
    os.register_at_fork(after_in_child=_in_use.clear)
