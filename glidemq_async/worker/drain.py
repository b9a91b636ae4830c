"""Waits until a worker finds nothing to claim, for `until_empty`."""

from __future__ import annotations

import asyncio
from typing import Final

from glidemq_async._internal.waits import first_of
from glidemq_async.functions.callers import Functions
from glidemq_async.stored.record import WAITING
from glidemq_async.worker.claim_loop import ClaimLoop
from glidemq_async.worker.other_runs import OtherRuns
from glidemq_async.worker.reports import Reports
from glidemq_async.worker.slots import Slots

HELD_BACK_SECONDS: Final = 0.5
"""Pause before a worker with `until_empty` checks again for jobs that were held back."""


class Drain:
    """Waits until nothing is left that the worker should run."""

    def __init__(self, functions: Functions, loop: ClaimLoop, slots: Slots, reports: Reports) -> None:
        self._functions = functions
        self._loop = loop
        self._slots = slots
        self._reports = reports
        self._others = OtherRuns(functions)

    async def wait(self, stopped: asyncio.Event) -> None:
        """Wait until no job is left that could still start here, or `stopped` is set. Raises StorageUnavailable."""
        while not stopped.is_set():
            await self.wait_for_claims(stopped)
            if not await self._may_find_more():
                return

    async def wait_for_claims(self, stopped: asyncio.Event) -> None:
        """Wait until a claim has found nothing and no job is running here, or `stopped` is set."""
        while not stopped.is_set():
            # Each event can be cleared while the other one is awaited: a run that ends may add a job, and a wake-up may
            # bring one. So both are checked again together, without an await in between.
            await first_of(self._loop.found_nothing, stopped)
            await first_of(self._slots.all_free, stopped)
            if not len(self._slots) and self._loop.found_nothing.is_set():
                return

    async def _may_find_more(self) -> bool:
        """Return whether a later claim may find a job, after it has arranged that claim."""
        # Only an empty claim that was sent after the last retry was due proves that no retry is left.
        sent_at = self._loop.calls.sent_at
        if await self._functions.reading.is_paused():
            return False
        if not self._loop.found_nothing.is_set():  # a job arrived during the call
            return True
        if sent_at < self._reports.retries_due:
            self._claim_at(self._reports.retries_due)
            return True
        counts = await self._functions.reading.count_jobs()
        if not any(counts[state] for state in WAITING) and not await self._others.may_come_back():
            return False
        # A limit, a paused key or a run of another worker holds them back. The store wakes this worker when it can
        # claim one. It also checks itself, because other workers may claim all of them without any wake-up.
        self._claim_at(asyncio.get_running_loop().time() + HELD_BACK_SECONDS)
        return True

    def _claim_at(self, at: float) -> None:
        self._loop.found_nothing.clear()
        asyncio.get_running_loop().call_at(at, self._loop.wake)
