"""Turning SIGTERM and SIGINT into an orderly stop, and a second one into a quick one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import TypeAlias

Act: TypeAlias = Callable[[], None]
_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


class _Listener:
    """One block that listens: what it does at its first signal, and at each later one."""

    def __init__(self, stop: Act, hurry: Act) -> None:
        self._stop, self._hurry = stop, hurry
        self._told = False

    def tell(self) -> None:
        act, self._told = self._hurry if self._told else self._stop, True
        act()


class _Watch:
    """The signals of one loop, and all who listen to them: several workers may run side by side in it."""

    def __init__(self) -> None:
        self.listeners: list[_Listener] = []
        self._before: dict[signal.Signals, _Handler] = {}

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)
            try:
                loop.add_signal_handler(number, self._tell)
            except (NotImplementedError, ValueError, RuntimeError):
                return
            self._before[number] = before

    def _tell(self) -> None:
        for listener in tuple(self.listeners):
            listener.tell()

    def remove(self, loop: asyncio.AbstractEventLoop) -> None:
        for number, before in self._before.items():
            loop.remove_signal_handler(number)
            # The loop leaves the default behind; asyncio.run, for one, has its own handler for Ctrl-C.
            if before is not None:
                signal.signal(number, before)


_watches: dict[asyncio.AbstractEventLoop, _Watch] = {}


@contextmanager
def stop_on_signals(stop: Act | None, hurry: Act | None = None) -> Generator[None]:
    """Call `stop` in the running loop at SIGTERM or SIGINT while the block runs; None leaves signals alone.

    `hurry` is called at every further one instead, where it is given. Each block that listens in a loop is told.
    Where the loop cannot handle signals (another thread, another platform) nothing is installed: the program that
    embeds the worker stops it itself.
    """
    if stop is None:
        yield
        return
    loop = asyncio.get_running_loop()
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = _Watch()
        watch.install(loop)
    listener = _Listener(stop, hurry or stop)
    watch.listeners.append(listener)
    try:
        yield
    finally:
        watch.listeners.remove(listener)
        if not watch.listeners:
            del _watches[loop]
            watch.remove(loop)
