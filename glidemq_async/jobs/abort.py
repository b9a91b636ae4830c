"""The abort signal of a running job: an Event that a handler can await in the loop or ask from a thread."""

from __future__ import annotations

import asyncio
import threading


class AbortSignal:
    """Set when the run should stop: it was revoked, timed out, lost its lease, or its worker shuts down.

    `is_set` may be asked from any thread; `await wait()` belongs to the worker's event loop. `reason` says why
    ("revoked", "timeout", "lease lost", "shutdown", or "cancelled" by something else; "" while not set).
    """

    __slots__ = ("_flag", "_waiters", "reason")

    def __init__(self) -> None:
        self._flag = threading.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self.reason = ""

    def is_set(self) -> bool:
        """Return whether the run should stop."""
        return self._flag.is_set()

    async def wait(self) -> None:
        """Wait until the run should stop."""
        if self._flag.is_set():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)

    def wait_in_thread(self, timeout: float | None = None) -> bool:
        """Wait in a thread, at most `timeout` seconds; returns whether the signal is set."""
        return self._flag.wait(timeout)

    def set(self, reason: str) -> None:
        """Ask the run to stop; to be called in the worker's event loop. The first reason stays."""
        if self._flag.is_set():
            return
        self.reason = reason
        self._flag.set()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
