"""Blocking forms of coroutine methods, for code without an event loop: the base of every `.sync`."""

# A class of blocking methods takes them from the class with the coroutines, so that their signatures are written once:
#
#     class SyncQueue(Blocking[Queue[Data, Result]], Generic[Data, Result]):
#         add = blocking(Queue[Data, Result].add)

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from glidemq_async._internal.loops import Home

P = ParamSpec("P")
T = TypeVar("T")
Owner = TypeVar("Owner")


class Blocking(Generic[Owner]):
    """The blocking form of an object's coroutine methods. An async iterator becomes an iterator.

    The work runs in the loop of `home`. If `home` has no loop yet, it runs in the loop of this process's portal, and
    `home` belongs to that loop from then on. Calls may come from any thread except the thread of that loop, where they
    raise RuntimeError instead of a deadlock.
    """

    __slots__ = ("_home", "_owner")

    def __init__(self, owner: Owner, home: Home) -> None:
        self._owner = owner
        self._home = home

    def __repr__(self) -> str:
        return f"{self._owner!r}.sync"

    # Type checkers would otherwise accept every name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            owner = type(self._owner).__name__
            raise AttributeError(f"{owner}.sync has only coroutine methods, and {name!r} is not one; leave out .sync")

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
        from glidemq_async._internal.portal import portal, running_loop

        running = running_loop()
        if running is not None and (running is self._home.loop or portal.serves(running)):
            asyncio.run_coroutine_threadsafe(_close(items), running)
        else:
            self._finish(_close(items))

    def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end in the right loop."""
        # Imports anyio, which a program without `.sync` does not need.
        from glidemq_async._internal.portal import call, check_loop, portal

        try:
            loop = self._home.loop
            check_loop(loop, self._owner)
            if loop is None or portal.serves(loop):
                return portal.run(self._home, work)
            return call(loop, work, loop.is_running)
        finally:
            # Only needed if the work could not be started.
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()


class BlockingContext(Blocking[Owner]):
    """The blocking form of an object that is an async context manager too."""

    __slots__ = ()

    def __enter__(self) -> Self:
        manager = cast("AbstractAsyncContextManager[Any]", self._owner)
        self._finish(manager.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        manager = cast("AbstractAsyncContextManager[Any]", self._owner)
        self._finish(manager.__aexit__(kind, error, trace))


class BlockingMethod(Generic[Owner, P, T]):
    """The blocking form of one coroutine method, as a descriptor in a class of `Blocking`.

    `Owner` is a type variable because pyright loses the type variables of a generic class without it.
    """

    __slots__ = ("_function",)

    def __init__(self, method: Callable[Concatenate[Owner, P], Any], function: Callable[..., T]) -> None:
        functools.update_wrapper(function, method)
        self._function = function

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: Blocking[Any], owner: type) -> Callable[P, T]: ...

    def __get__(self, instance: Blocking[Any] | None, owner: type) -> Callable[P, T] | Self:
        # The class shows the function, for signatures and documentation.
        return cast("Callable[P, T]", self._function if instance is None else MethodType(self._function, instance))


@overload
def blocking(method: Callable[Concatenate[Owner, P], Coroutine[Any, Any, T]]) -> BlockingMethod[Owner, P, T]: ...


@overload
def blocking(method: Callable[Concatenate[Owner, P], AsyncIterator[T]]) -> BlockingMethod[Owner, P, Iterator[T]]: ...


def blocking(method: Callable[Concatenate[Owner, P], Any]) -> BlockingMethod[Owner, P, Any]:
    """Return the blocking form of a coroutine method or of a method that returns an async iterator."""
    name = method.__name__

    # `method` comes from the class. A subclass of the owner may override it.
    def run(self: Blocking[Any], *args: Any, **kwargs: Any) -> Any:
        return self._finish(getattr(self._owner, name)(*args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    def iterate(self: Blocking[Any], *args: Any, **kwargs: Any) -> Any:
        return self._iterate(getattr(self._owner, name)(*args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return BlockingMethod(method, iterate if inspect.isasyncgenfunction(inspect.unwrap(method)) else run)


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _close(items: AsyncGenerator[Any, Any]) -> None:
    await items.aclose()


# Exit handlers run in reverse order. This one is registered when the library is imported, and not with the first call
# of `.sync`, so that exit handlers of the program can still use its queues.
@atexit.register
def _close_all() -> None:
    if "glidemq_async._internal.portal" in sys.modules:
        from glidemq_async._internal.portal import portal

        portal.close_all()
