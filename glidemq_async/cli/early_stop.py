"""Ends a worker process that is asked to stop before its event loop handles signals.

The command imports its modules for 0.1 s. An app may import its modules for many seconds.
"""

from __future__ import annotations

import os
import signal
from types import FrameType


def is_worker(arguments: list[str]) -> bool:
    """Return True for the command line of `glidemq worker`."""
    return next((word for word in arguments if not word.startswith("-")), None) == "worker"


def stop_early() -> None:
    """End this process with exit code 0 on SIGTERM or SIGINT, until other handlers are installed."""
    # A signal that was ignored when the program started, for example SIGINT in the background, stays ignored.
    for number, default in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is default:
            signal.signal(number, _end)


# No job has been claimed, or every outcome has been stored: the event loop also restores this handler at its end. An
# exception could be swallowed by an `except` of the app or of a module that is being imported, and the exit of the
# interpreter would wait for threads of the app. Therefore the handler ends the process immediately.
def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)
