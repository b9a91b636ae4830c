"""The event loop that does the work of `.sync`, and the calls of threads to event loops.

One portal per process, in a thread, serves all objects that do not belong to another loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent import futures
from contextvars import copy_context
from typing import Any, Final, Generic, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

from glidemq_async._internal import forks
from glidemq_async._internal.loops import Home

CHECK_SECONDS: Final = 1.0
"""Interval at which a caller checks that the event loop that works for it still runs."""
BLOCKED_SECONDS: Final = 5.0
"""Time after which a caller warns that its event loop has not started the work."""
EXIT_SECONDS: Final = 5.0
"""Time limit for closing open objects when the interpreter exits."""

_BLOCKED: Final = (
    "a thread waits for %s, which the event loop has not started for %g s, so something blocks that loop. If the loop "
    "waits for this thread (a coroutine that calls blocking code), they deadlock; use asyncio.to_thread for that call"
)
_log = logging.getLogger(__name__)

T = TypeVar("T")


# `BlockingPortal.call` needs two round trips between the threads, one to start the task and one for its result, and
# concurrent futures with their conditions and callbacks. An empty coroutine takes 47 us this way. It takes 22 us with
# `asyncio.run_coroutine_threadsafe`, and 17 with this class. An add takes about 150 us in all, so the
# difference is felt. Only the calls avoid the portal's method: the portal runs the loop and the thread.
class _Call(Generic[T]):
    """A coroutine that runs in the loop of another thread, and the thread that waits for it."""

    __slots__ = ("_context", "_ended", "_error", "_loop", "_result", "_task", "_work")

    _result: T

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._work = work
        self._context = copy_context()
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._ended = threading.Lock()
        self._ended.acquire()

    def wait(self, runs: Callable[[], bool]) -> T:
        """Start the work and wait for its end, as long as its loop runs."""
        self._loop.call_soon_threadsafe(self._start)
        seconds: float | None = BLOCKED_SECONDS
        try:
            while not self._ended.acquire(timeout=CHECK_SECONDS):
                if not runs():
                    raise RuntimeError("the event loop ended during the call, so its outcome is unknown")
                if self._task is not None and self._task.cancelled():  # before its first step, so `_run` did not run
                    self._work.close()
                    raise asyncio.CancelledError
                if seconds is not None and self._task is None and (seconds := seconds - CHECK_SECONDS) <= 0:
                    _log.warning(_BLOCKED, getattr(self._work, "__qualname__", "a call"), BLOCKED_SECONDS)
                    seconds = None
        except BaseException:
            # The caller stopped waiting (KeyboardInterrupt), so cancel the work.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cancel)
            raise
        if self._error is not None:
            raise self._error
        return self._result

    def _start(self) -> None:
        self._task = self._loop.create_task(self._run(), context=self._context)

    async def _run(self) -> None:
        # `wait` raises every exception in the thread of the caller. A KeyboardInterrupt or SystemExit that leaves this
        # task would end the loop for all other calls. A cancellation must reach the caller, which would wait for ever.
        try:
            self._result = await self._work
        except BaseException as error:  # noqa: BLE001
            self._error = error
        finally:
            self._ended.release()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


def call(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], runs: Callable[[], bool]) -> T:
    """Run `work` in the event loop of another thread, and wait for its end as long as `runs` returns true."""
    return _Call(loop, work).wait(runs)


class Portal:
    """An event loop in a daemon thread. It starts with the first call and ends when all its objects are closed."""

    def __init__(self) -> None:
        self._begin()
        forks.watch(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._portal: BlockingPortal | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls = 0
        self._homes: weakref.WeakSet[Home] = weakref.WeakSet()

    def _after_fork(self) -> object:
        """Reset in a forked child: threads do not survive a fork, and a lock may have been held."""
        parents = (self._lock, self._thread, self._portal, self._loop, self._homes)
        self._begin()
        return parents

    def serves(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether this is the loop of the portal."""
        return loop is self._loop

    def run(self, home: Home, work: Coroutine[Any, Any, T]) -> T:
        """Run work to its end. The portal stays as long as `home` belongs to its loop."""
        loop = self._enter(home)
        try:
            return call(loop, work, self._runs)
        finally:
            self._leave(home)

    def close_all(self) -> None:
        """Close all open objects within a time limit. `blocking` calls it when the interpreter exits."""
        loop = self._loop
        if loop is not None and self._runs():
            futures.wait([asyncio.run_coroutine_threadsafe(_close_all(list(self._homes)), loop)], EXIT_SECONDS)

    def _runs(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _enter(self, home: Home) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or not self._runs():
                self._start()
            assert self._loop is not None  # noqa: S101 - started
            self._calls += 1
            self._homes.add(home)
            return self._loop

    def _leave(self, home: Home) -> None:
        with self._lock:
            self._calls -= 1
            if self._calls or self._portal is None or home.loop is self._loop:
                return
            if any(other.loop is self._loop for other in self._homes):
                return
            self._homes.clear()
            portal, thread = self._portal, self._thread
            self._thread = self._portal = self._loop = None
            portal.call(portal.stop)
        if thread is not None:
            thread.join()

    # anyio's `start_blocking_portal` is a generator that waits for its thread when it is collected. A program may exit
    # with open objects. The interpreter then stops daemon threads before it collects globals, so the generator would
    # wait for ever. This method does the same without a generator.
    def _start(self) -> None:
        ready: futures.Future[tuple[BlockingPortal, asyncio.AbstractEventLoop]] = futures.Future()
        # A daemon thread does not keep the interpreter alive. `close_all` closes the open objects on exit.
        self._thread = threading.Thread(target=_serve, args=[ready], name="glidemq-sync", daemon=True)
        self._thread.start()
        self._portal, self._loop = ready.result()


# Not the fastest kind of event loop, but one that survives a fork of its process.
class _Loop(asyncio.SelectorEventLoop):
    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        try:
            return await super().getaddrinfo(host, port, **options)
        except RuntimeError:
            # The interpreter is exiting and starts no more threads.
            return socket.getaddrinfo(host, port, **options)


def _serve(ready: futures.Future[tuple[BlockingPortal, asyncio.AbstractEventLoop]]) -> None:
    async def until_stopped() -> None:
        async with BlockingPortal() as portal:
            ready.set_result((portal, asyncio.get_running_loop()))
            await portal.sleep_until_stopped()

    try:
        anyio.run(until_stopped, backend_options={"loop_factory": _Loop})
    except BaseException as error:
        if ready.done():
            raise
        ready.set_exception(error)


async def _close_all(homes: list[Home]) -> None:
    for home in homes:
        with contextlib.suppress(Exception):
            await home.close()


portal: Final = Portal()


def check_loop(loop: asyncio.AbstractEventLoop | None, owner: object) -> None:
    """Raise RuntimeError for a call that would never return."""
    running = running_loop()
    if loop is None:
        # The portal's own thread would have to work and wait at the same time.
        if running is None or not portal.serves(running):
            return
        loop = running
    if loop is running:
        raise RuntimeError(
            f"{owner!r}.sync was called in the thread of the event loop that has to do the work, which would deadlock; "
            "await the method itself, or call it in another thread (asyncio.to_thread)"
        )
    if not portal.serves(loop) and (loop.is_closed() or not loop.is_running()):
        raise RuntimeError(
            f"{owner!r} belongs to an event loop that has ended; close objects before their loop ends, "
            "and use a new one with .sync"
        )


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop of this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
