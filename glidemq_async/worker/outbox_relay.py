"""Relays the outbox of a worker's queue after a wake-up, and repeats failed deliveries."""

from __future__ import annotations

import asyncio
from typing import Final

from glidemq_async.client.outbox import Outbox
from glidemq_async.worker.reports import Reports

FIRST_PAUSE: Final = 0.5
"""Pause in seconds after the first error. Each further error in a row doubles it."""
LONGEST_PAUSE: Final = 30.0


class OutboxRelay:
    """Relays the outbox when woken. After an error it pauses, longer each time.

    Entries stay until they are delivered.
    """

    def __init__(self, outbox: Outbox, reports: Reports) -> None:
        self._outbox = outbox
        self._reports = reports
        self._event = asyncio.Event()
        self._pause = FIRST_PAUSE

    def wake(self) -> None:
        """Relay soon: an entry was added to the outbox, or a sweep found one."""
        self._event.set()

    async def run(self) -> None:
        """Relay until cancelled."""
        while True:
            await self._event.wait()
            if not await self._relay():
                await asyncio.sleep(self._pause)
                self._pause = min(2 * self._pause, LONGEST_PAUSE)

    async def finish(self) -> None:
        """Relay the remaining entries once, after `run` was cancelled."""
        if self._event.is_set():
            await self._relay()

    async def _relay(self) -> bool:
        # Cleared first: an entry that is added while this relay runs sets the event again, so it is relayed by the next
        # one. The event is set again after a failure, because the entries are still in the outbox.
        self._event.clear()
        try:
            await self._outbox.relay()
        except asyncio.CancelledError:
            self._event.set()
            raise
        except Exception as error:  # noqa: BLE001 - a relay that fails once must not end relaying
            self._event.set()
            self._reports.failed_try(error, self._pause)
            return False
        self._pause = FIRST_PAUSE
        return True
