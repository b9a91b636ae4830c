"""A timer that fires exactly at a due time, although timers of event loops may fire late."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

# Timers can fire this much late: event loops wait in whole milliseconds, and some also measure time in milliseconds.
TIMER_GRAIN: Final = 0.0015


class DueTimer:
    """Calls `fire` at one monotonic time. The last moment before it is a busy loop of callbacks."""

    def __init__(self, fire: Callable[[], None]) -> None:
        self._fire = fire
        self._handle: asyncio.Handle | None = None

    def cancel(self) -> None:
        """Do not fire."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def set(self, seconds: float) -> None:
        """Fire once after this time, instead of any earlier setting."""
        self.cancel()
        self._wait(asyncio.get_running_loop(), time.monotonic() + seconds)

    def _wait(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        rest = at - time.monotonic()
        if rest > TIMER_GRAIN:
            self._handle = loop.call_later(rest - TIMER_GRAIN, self._wait, loop, at)
        elif rest > 0:
            self._handle = loop.call_soon(self._wait, loop, at)
        else:
            self._handle = None
            self._fire()
