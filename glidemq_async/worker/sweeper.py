"""Sweeps: reclaim the jobs of dead workers. Every worker tries; the store accepts one sweep per interval."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from glidemq_async._internal import failpoints
from glidemq_async.functions.callers import Functions

LONGEST_INTERVAL: Final = 1.0
"""Maximum pause between two sweeps in seconds, however long leases are, because a sweep also expires waiting jobs."""


class Sweeper:
    """Sweeps one queue every tenth of a lease (at most every second), and less often while another worker sweeps."""

    def __init__(
        self,
        functions: Functions,
        *,
        lease: float,
        max_stalled: int,
        on_stalled: Callable[[list[str], list[str]], None],
        on_posted: Callable[[], None],
        on_error: Callable[[Exception], None],
        on_next_slot: Callable[[float], None],
    ) -> None:
        self._functions = functions
        self._max_stalled = max_stalled
        self._on_stalled = on_stalled
        self._on_posted = on_posted
        self._on_error = on_error
        self._on_next_slot = on_next_slot
        self._interval = min(LONGEST_INTERVAL, lease / 10)
        self._rest = max(self._interval, min(5 * LONGEST_INTERVAL, lease / 4))
        self._gap_ms = round(lease * 500)

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            swept = await self._sweep()
            pause = self._interval if swept else self._rest
            # Not shorter than the interval: the store refuses an early sweep, and the pause after a refusal is long.
            await asyncio.sleep(pause * random.uniform(1.02, 1.2))

    async def _sweep(self) -> bool:
        resume = False
        try:
            while True:
                if failpoints.armed:
                    failpoints.hit("sweep.before_send")
                reply = await self._functions.sweep(
                    self._max_stalled, round(self._interval * 1000), self._gap_ms, resume=resume
                )
                if reply is None:
                    return False
                if reply.recovered or reply.failed:
                    self._on_stalled(reply.recovered, reply.failed)
                if reply.next_slot is not None:
                    self._on_next_slot(reply.next_slot)
                if reply.posted:
                    self._on_posted()
                if not reply.more:
                    return True
                resume = True
        except Exception as error:  # noqa: BLE001 - a sweep that fails once must not end sweeping
            self._on_error(error)
            return False
