"""Blocking forms of coroutine methods, for code without an event loop. They implement every `.sync`.

One event loop per process, in a thread, serves all objects that do not belong to another loop.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import logging
import socket
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar, cast, runtime_checkable

from glidemq_async._internal import forks

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
Owner = TypeVar("Owner")


@runtime_checkable
class Home(Protocol):
    """An object that belongs to one event loop and works only in that loop."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop. None before the first use and after `close`."""
        ...

    async def close(self) -> None:
        """Release all resources. Idempotent."""
        ...


class Blocking(Generic[Owner]):
    """The blocking form of an object's coroutine methods. An async iterator becomes an iterator.

    The work runs in the loop of `home`. If `home` has no loop yet, it runs in the loop of this process's portal, and
    `home` belongs to that loop from then on. Calls may come from any thread except the thread of that loop, where they
    raise RuntimeError instead of a deadlock. For `.sync` of an object, write `cast("SyncThing", Blocking(self, home))`,
    where SyncThing is a Protocol of its methods.
    """

    __slots__ = ("_home", "_owner")

    def __init__(self, owner: Owner, home: Home) -> None:
        self._owner = owner
        self._home = home

    def __repr__(self) -> str:
        return f"{self._owner!r}.sync"

    # Any, because the types come from the Protocol to which this object is cast.
    def __getattr__(self, name: str) -> Any:
        method = getattr(self._owner, name)
        if name.startswith("_") or not _is_awaited(method):
            owner = type(self._owner).__name__
            raise AttributeError(f"{owner}.sync has only coroutine methods, and {name!r} is not one; leave out .sync")

        def call(*args: Any, **kwargs: Any) -> Any:
            if inspect.isasyncgenfunction(method):
                return self._iterate(method(*args, **kwargs))
            return self._finish(method(*args, **kwargs))

        call.__name__, call.__doc__ = name, method.__doc__
        return call

    def __enter__(self) -> Self:
        manager = cast("AbstractAsyncContextManager[Any]", self._owner)
        self._finish(manager.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        manager = cast("AbstractAsyncContextManager[Any]", self._owner)
        self._finish(manager.__aexit__(kind, error, trace))

    def _iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        try:
            while True:
                try:
                    item = self._finish(_next(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if inspect.isasyncgen(items):
                self._end(cast("AsyncGenerator[Any, Any]", items))

    def _end(self, items: AsyncGenerator[Any, Any]) -> None:
        # The garbage collector may call this in any thread, including the thread of the loop, so it must not wait.
        running = _running_loop()
        if running is not None and (running is self._home.loop or portal.serves(running)):
            running.create_task(_close(items))
        else:
            self._finish(_close(items))

    def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end in the right loop."""
        try:
            loop = self._home.loop
            _check_loop(loop, self._owner)
            if loop is None or portal.serves(loop):
                return portal.run(self._home, work)
            return _Call(loop, work).wait(loop.is_running)
        finally:
            # Only needed if the work could not be started.
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()


class BlockingIterable(Blocking[Owner]):
    """The blocking form of an async iterable, which can be iterated over."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return self._iterate(aiter(cast("AsyncIterable[Any]", self._owner)))


def _is_awaited(method: Any) -> bool:
    method = inspect.unwrap(method)
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _close(items: AsyncGenerator[Any, Any]) -> None:
    await items.aclose()


def _check_loop(loop: asyncio.AbstractEventLoop | None, owner: object) -> None:
    """Raise RuntimeError for a call that would never return."""
    running = _running_loop()
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


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _Call(Generic[T]):
    """A coroutine that runs in the loop of another thread, and the thread that waits for it."""

    __slots__ = ("_context", "_ended", "_loop", "_task", "_work")

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._work = work
        self._context = copy_context()
        self._task: asyncio.Task[T] | None = None
        # A plain lock, because a future with its condition and callbacks costs several times as much.
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
                if seconds is not None and self._task is None and (seconds := seconds - CHECK_SECONDS) <= 0:
                    _log.warning(_BLOCKED, getattr(self._work, "__qualname__", "a call"), BLOCKED_SECONDS)
                    seconds = None
        except BaseException:
            # The caller stopped waiting (KeyboardInterrupt), so cancel the work.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cancel)
            raise
        assert self._task is not None  # noqa: S101 - it has ended
        return self._task.result()

    def _start(self) -> None:
        self._task = self._loop.create_task(self._work, context=self._context)
        self._task.add_done_callback(self._release)

    def _release(self, _task: asyncio.Task[T]) -> None:
        self._ended.release()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class Portal:
    """An event loop in a daemon thread. It starts with the first call and ends when all its objects are closed."""

    def __init__(self) -> None:
        self._begin()
        forks.watch(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls = 0
        self._homes: weakref.WeakSet[Home] = weakref.WeakSet()

    def after_fork(self) -> object:
        """Reset in a forked child: threads do not survive a fork, and a lock may have been held."""
        parents = (self._lock, self._thread, self._loop, self._homes)
        self._begin()
        return parents

    def serves(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether this is the loop of the portal."""
        return loop is self._loop

    def run(self, home: Home, work: Coroutine[Any, Any, T]) -> T:
        """Run work to its end. The portal stays as long as `home` belongs to its loop."""
        loop = self._enter(home)
        try:
            return _Call(loop, work).wait(self._runs)
        finally:
            self._leave(home)

    def close_all(self) -> None:
        """Close all open objects within a time limit. Called when the interpreter exits."""
        loop = self._loop
        if loop is not None and self._runs():
            wait([asyncio.run_coroutine_threadsafe(_close_all(list(self._homes)), loop)], EXIT_SECONDS)

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
            if self._calls or self._loop is None or home.loop is self._loop:
                return
            if any(other.loop is self._loop for other in self._homes):
                return
            self._homes.clear()
            loop, thread = self._loop, self._thread
            self._thread = self._loop = None
            loop.call_soon_threadsafe(loop.stop)
        if thread is not None:
            thread.join()

    def _start(self) -> None:
        ready: Future[asyncio.AbstractEventLoop] = Future()
        # A daemon thread does not keep the interpreter alive. `close_all` closes the open objects on exit.
        self._thread = threading.Thread(target=_serve, args=[ready], name="glidemq-sync", daemon=True)
        self._thread.start()
        self._loop = ready.result()


# Not the fastest kind of event loop, but one that survives a fork of its process.
class _Loop(asyncio.SelectorEventLoop):
    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        try:
            return await super().getaddrinfo(host, port, **options)
        except RuntimeError:
            # The interpreter is exiting and starts no more threads.
            return socket.getaddrinfo(host, port, **options)


def _serve(ready: Future[asyncio.AbstractEventLoop]) -> None:
    try:
        runner = asyncio.Runner(loop_factory=_Loop)
        loop = runner.get_loop()
    except BaseException as error:  # noqa: BLE001 - it did not even start: whoever waits for it is to know
        ready.set_exception(error)
        return
    with runner:
        ready.set_result(loop)
        while True:
            # Any exception of a call, even SystemExit, belongs to its caller. The loop must continue for the others.
            with contextlib.suppress(KeyboardInterrupt, SystemExit):
                loop.run_forever()
                return


async def _close_all(homes: list[Home]) -> None:
    for home in homes:
        with contextlib.suppress(Exception):
            await home.close()


portal: Final = Portal()

atexit.register(portal.close_all)
