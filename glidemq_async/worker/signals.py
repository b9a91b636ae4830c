"""Turning SIGTERM and SIGINT into an orderly stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signals(stop: Callable[[], None] | None) -> Generator[None]:
    """Call `stop` in the running loop at SIGTERM or SIGINT while the block runs; None leaves signals alone.

    Where the loop cannot handle signals (another thread, another platform) nothing is installed: the program that
    embeds the worker stops it itself.
    """
    installed: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT) if stop is not None else ():
        before = signal.getsignal(number)
        try:
            loop.add_signal_handler(number, stop or (lambda: None))
        except (NotImplementedError, ValueError, RuntimeError):
            break
        installed[number] = before
    try:
        yield
    finally:
        for number, before in installed.items():
            loop.remove_signal_handler(number)
            # The loop leaves the default behind; asyncio.run, for one, has its own handler for Ctrl-C.
            if before is not None:
                signal.signal(number, before)
