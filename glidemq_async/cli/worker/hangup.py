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
    # The signal itself has one meaning for daemons ("read your configuration again") and another one for programs in a
    # terminal ("your terminal is gone"). The terminal decides: if the process had one and has lost it, the signal came
    # from its end. Under nohup the signal is ignored when this program starts. A handler is installed anyway, so that
    # SIGHUP can restart the processes later, and the loss of the terminal then stops nothing.
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
