"""The abort signal of a running job. A handler awaits it in the event loop or polls it from a thread."""

# `set_abort` uses private attributes of AbortSignal, because a handler must not set its own signal.
# pyright: reportPrivateUsage=false
# ruff: noqa: SLF001

from __future__ import annotations

import asyncio
import threading
from typing import Final

_making: Final = threading.Lock()
"""Held while a thread makes the event of a signal."""


class AbortSignal:
    """An event that is set when the run should stop: revoked, timed out, lease lost, or worker shutdown.

    Any thread may call `is_set`. `await wait()` works only in the worker's event loop. `reason` is the cause:
    "revoked", "timeout", "lease lost", "shutdown", "cancelled" (by other code), or "" while the signal is not set.
    """

    __slots__ = {
        "_event": "",
        "_is_set": "",
        "_waiters": "",
        "reason": 'The cause of the stop, "" while the signal is not set.',
    }

    def __init__(self) -> None:
        self._is_set = False
        self._event: threading.Event | None = None
        """Made by the first thread that waits, because it costs more than the rest of a signal."""
        self._waiters: list[asyncio.Future[None]] = []
        self.reason = ""

    def is_set(self) -> bool:
        """Return whether the run should stop."""
        return self._is_set

    async def wait(self) -> None:
        """Wait until the run should stop."""
        if self._is_set:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)

    def wait_in_thread(self, timeout: float | None = None) -> bool:
        """Block the current thread until the signal is set, for at most `timeout` seconds. Return whether it is set."""
        with _making:
            if self._event is None:
                self._event = threading.Event()
        # `set_abort` sets the flag before it looks for the event. So it finds the event, or this line finds the flag.
        return self._is_set or self._event.wait(timeout)


def set_abort(signal: AbortSignal, reason: str) -> None:
    """Set the signal. Only call this in the worker's event loop. The first reason is kept."""
    if signal._is_set:
        return
    # The reason comes first: a handler in a thread may see the flag immediately and read the reason.
    signal.reason = reason
    signal._is_set = True
    if signal._event is not None:
        signal._event.set()
    for waiter in signal._waiters:
        if not waiter.done():
            waiter.set_result(None)
