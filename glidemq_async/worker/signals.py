"""Handles SIGTERM and SIGINT: the first signal requests an orderly stop, the second an immediate one."""

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
    """One active `stop_on_signals` block, with the actions for its first and for its later signals."""

    def __init__(self, stop: Act, again: Act) -> None:
        self._stop, self._again = stop, again
        self._signalled = False

    def notify(self) -> None:
        act, self._signalled = self._again if self._signalled else self._stop, True
        act()


class _Watch:
    """The signal handlers of one loop and their listeners. Several workers may share a loop."""

    def __init__(self) -> None:
        self.listeners: list[_Listener] = []
        self._before: dict[signal.Signals, _Handler] = {}

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)
            try:
                loop.add_signal_handler(number, self._on_signal)
            except (NotImplementedError, ValueError, RuntimeError):
                return
            self._before[number] = before

    def _on_signal(self) -> None:
        for listener in tuple(self.listeners):
            listener.notify()

    def remove(self, loop: asyncio.AbstractEventLoop) -> None:
        for number, before in self._before.items():
            loop.remove_signal_handler(number)
            # The loop restores the default handlers, but asyncio.run, for example, installs its own handler for Ctrl-C.
            if before is not None:
                signal.signal(number, before)


_watches: dict[asyncio.AbstractEventLoop, _Watch] = {}


@contextmanager
def stop_on_signals(stop: Act | None, again: Act | None = None) -> Generator[None]:
    """Call `stop` in the running loop on SIGTERM or SIGINT while the block runs. None ignores signals.

    `again` is called instead for each further signal, if it is given. Every active block of a loop receives the
    signals. If the loop cannot handle signals (in another thread, or on another platform), nothing is installed, and
    the program around the worker must stop it.
    """
    if stop is None:
        yield
        return
    loop = asyncio.get_running_loop()
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = _Watch()
        watch.install(loop)
    listener = _Listener(stop, again or stop)
    watch.listeners.append(listener)
    try:
        yield
    finally:
        watch.listeners.remove(listener)
        if not watch.listeners:
            del _watches[loop]
            watch.remove(loop)
