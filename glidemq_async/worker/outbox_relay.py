"""A worker's part in relaying its queue's outbox: when told that something was posted, and until it is delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from glidemq_async.queues.outbox import Outbox

FIRST_PAUSE: Final = 0.5
"""Seconds after the first error; each further one in a row doubles it."""
LONGEST_PAUSE: Final = 30.0


class Relaying:
    """Relays when woken. After an error it pauses, longer each time; what was posted stays where it is."""

    def __init__(self, outbox: Outbox, on_error: Callable[[Exception], None]) -> None:
        self._outbox = outbox
        self._on_error = on_error
        self._event = asyncio.Event()
        self._pause = FIRST_PAUSE

    def wake(self) -> None:
        """Something was posted, or a sweep found that something still stands there."""
        self._event.set()

    async def run(self) -> None:
        """Relay until cancelled."""
        while True:
            await self._event.wait()
            if not await self._relay():
                await asyncio.sleep(self._pause)
                self._pause = min(2 * self._pause, LONGEST_PAUSE)

    async def finish(self) -> None:
        """Relay what is left once, after `run` was cancelled."""
        if self._event.is_set():
            await self._relay()

    async def _relay(self) -> bool:
        self._event.clear()
        try:
            await self._outbox.relay()
        except asyncio.CancelledError:
            self._event.set()
            raise
        except Exception as error:  # noqa: BLE001 - a relay that fails once must not end relaying
            self._event.set()
            self._on_error(error)
            return False
        self._pause = FIRST_PAUSE
        return True
