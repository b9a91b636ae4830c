"""Coroutine methods as blocking ones, for code without an event loop: what stands behind every `.sync`.

One loop per process, in a thread, serves everything that does not belong to a loop already.
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
"""How often a caller looks whether the loop that works for it still runs."""
BLOCKED_SECONDS: Final = 5.0
"""After how long a caller says that its loop has not even begun."""
EXIT_SECONDS: Final = 5.0
"""How long closing what is open may take when the interpreter ends."""

_BLOCKED: Final = (
    "a thread waits for %s, which the event loop has not begun for %g s: something blocks that loop. If it waits for "
    "this thread, as a coroutine does that calls a blocking client, it waits for ever: let it call by asyncio.to_thread"
)
_log = logging.getLogger(__name__)

T = TypeVar("T")
Owner = TypeVar("Owner")


@runtime_checkable
class Home(Protocol):
    """Something that belongs to an event loop: what it works for can be done in no other one."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop; None before the first use, and once it is closed."""
        ...

    async def close(self) -> None:
        """Let go of everything; idempotent."""
        ...


class Blocking(Generic[Owner]):
    """The coroutine methods of an object, each waiting for its end; an async iterator becomes an iterator.

    The work is done in the loop of `home`; before that has one, in the loop of this process's portal, which it belongs
    to from then on. Calls may come from any thread but the one whose loop would have to do the work: RuntimeError says
    so instead of waiting for ever. Whoever gives an object `.sync` writes `cast("SyncThing", Blocking(self, home))`,
    where SyncThing is a Protocol of its methods.
    """

    __slots__ = ("_home", "_owner")

    def __init__(self, owner: Owner, home: Home) -> None:
        self._owner = owner
        self._home = home

    def __repr__(self) -> str:
        return f"{self._owner!r}.sync"

    # Any: the types are those of the Protocol that this object is cast to.
    def __getattr__(self, name: str) -> Any:
        method = getattr(self._owner, name)
        if name.startswith("_") or not _is_awaited(method):
            owner = type(self._owner).__name__
            raise AttributeError(f"{owner}.sync has only what {owner} awaits, {name!r} is not: leave .sync out")

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
        # The collector runs where it likes, in the loop's own thread too, where nothing may wait.
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
            # Where it could not even start.
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()


class BlockingIterable(Blocking[Owner]):
    """The same of an object that is an async iterable: it can be iterated over."""

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
    """Refuse what would never come to an end."""
    running = _running_loop()
    if loop is None:
        # The portal's own thread would have to work and to wait.
        if running is None or not portal.serves(running):
            return
        loop = running
    if loop is running:
        raise RuntimeError(
            f"{owner!r}.sync was called in the thread of the event loop that would have to do the work, and would wait "
            "for ever: await the method itself, or call it in another thread (asyncio.to_thread)"
        )
    if not portal.serves(loop) and (loop.is_closed() or not loop.is_running()):
        raise RuntimeError(
            f"{owner!r} belongs to an event loop that does not run any more: close objects before their loop ends, "
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
        # A bare lock: a future, its condition and its callbacks would cost several times as much.
        self._ended = threading.Lock()
        self._ended.acquire()

    def wait(self, runs: Callable[[], bool]) -> T:
        """Start the work and wait for its end, for as long as its loop runs."""
        self._loop.call_soon_threadsafe(self._start)
        patience: float | None = BLOCKED_SECONDS
        try:
            while not self._ended.acquire(timeout=CHECK_SECONDS):
                if not runs():
                    raise RuntimeError("the event loop that did the work has ended; whether it was done is unknown")
                if patience is not None and self._task is None and (patience := patience - CHECK_SECONDS) <= 0:
                    _log.warning(_BLOCKED, getattr(self._work, "__qualname__", "a call"), BLOCKED_SECONDS)
                    patience = None
        except BaseException:
            # Nobody waits any more (a KeyboardInterrupt): the work is cancelled.
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
    """An event loop in a daemon thread; it starts with the first call, and ends when all it served are closed."""

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
        """Be one that has not started: threads do not survive a fork, and a lock may have been held; see `forks`."""
        parents = (self._lock, self._thread, self._loop, self._homes)
        self._begin()
        return parents

    def serves(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether this is the loop of the portal."""
        return loop is self._loop

    def run(self, home: Home, work: Coroutine[Any, Any, T]) -> T:
        """Run work to its end; the portal stays for as long as `home` belongs to its loop."""
        loop = self._enter(home)
        try:
            return _Call(loop, work).wait(self._runs)
        finally:
            self._leave(home)

    def close_all(self) -> None:
        """Close what is open, within a bound; for the end of the interpreter."""
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
        # A daemon: it must not keep the interpreter from ending. What is open then is closed by `close_all`.
        self._thread = threading.Thread(target=_serve, args=[ready], name="glidemq-sync", daemon=True)
        self._thread.start()
        self._loop = ready.result()


# Not the fastest kind of loop, but one that survives a fork of its process.
class _Loop(asyncio.SelectorEventLoop):
    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        try:
            return await super().getaddrinfo(host, port, **options)
        except RuntimeError:
            # The interpreter ends and gives out no more threads.
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
            # What a call raises is its caller's affair, be it SystemExit: the loop goes on for the others.
            with contextlib.suppress(KeyboardInterrupt, SystemExit):
                loop.run_forever()
                return


async def _close_all(homes: list[Home]) -> None:
    for home in homes:
        with contextlib.suppress(Exception):
            await home.close()


portal: Final = Portal()

atexit.register(portal.close_all)
