"""The thread in which all workers of a process renew their leases, with one event loop and one link per storage."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from glidemq_async.storage import Storage


class LeaseThread:
    """A daemon thread with an event loop. It ends with its last user."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._users = 0
        self._lock = threading.Lock()
        self._clones: dict[int, tuple[Storage, int]] = {}

    # Workers of several event loops start and stop this thread at any time, so `_lock` guards the number of its users
    # together with the loop. Two orders matter:
    #
    # - `start` counts its user before it hands over the coroutine. A `leave` of another worker that came in between
    #   would otherwise stop the loop, and the coroutine would never run.
    # - `leave` takes the loop away under the lock and stops it outside. The next `start` then begins a new thread, and
    #   never uses a loop that is about to stop. `join` runs without the lock, because the thread may need `call`.

    def start(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Run a coroutine in the thread. Call `leave` after it has ended."""
        with self._lock:
            self._users += 1
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=[self._loop], name="glidemq-leases", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the thread soon. Does nothing if the thread has ended."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function)

    def leave(self) -> None:
        """End one use that began with `start`. The last one ends the thread."""
        with self._lock:
            self._users -= 1
            if self._users or self._loop is None:
                return
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        loop.call_soon_threadsafe(loop.stop)
        if thread is not None:
            thread.join()

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        loop.run_forever()
        # Cancelled coroutines still have to close their connections.
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.close()

    def borrow(self, storage: Storage) -> Storage:
        """Return this thread's own link to the server of `storage`, not connected yet. Only call this in the thread."""
        # A connection belongs to one event loop, so the thread cannot use the connections of the worker. All workers of
        # a storage share one clone, because each further connection costs the server memory.
        clone, users = self._clones.get(id(storage)) or (storage.clone(), 0)
        self._clones[id(storage)] = (clone, users + 1)
        return clone

    async def release(self, storage: Storage) -> None:
        """End one `borrow`. The last one closes the link."""
        clone, users = self._clones[id(storage)]
        if users > 1:
            self._clones[id(storage)] = (clone, users - 1)
            return
        del self._clones[id(storage)]
        await clone.close()


shared = LeaseThread()


def _forget_after_fork() -> None:
    # Threads do not survive a fork, so a child that runs workers starts its own thread.
    global shared  # noqa: PLW0603
    shared = LeaseThread()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
