"""The two meanings of SIGHUP: a request for new processes, or a closed terminal."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress


def listen_to_hangup(restart: Callable[[], None], stop: Callable[[], None]) -> None:
    """Call `restart` in the running loop at SIGHUP, or `stop` if the terminal was closed.

    A program under nohup keeps running without its terminal. If the loop cannot handle signals, nothing is installed.
    """
    had_terminal = _has_terminal()

    def act() -> None:
        nonlocal had_terminal
        if had_terminal and not _has_terminal():
            had_terminal = False
            if not ignored:
                stop()
        else:
            restart()

    with suppress(NotImplementedError, ValueError, RuntimeError, AttributeError):
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, act)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
