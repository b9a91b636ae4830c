"""Sweeps: reclaim the jobs of dead workers. Every worker tries; the store accepts one sweep per interval."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from glidemq_async._internal import failpoints
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.client.warm_runs import WarmRuns
from glidemq_async.functions.stalled import SweepReply
from glidemq_async.worker.outbox_relay import OutboxRelay
from glidemq_async.worker.reports import Reports

LONGEST_INTERVAL: Final = 1.0
"""Maximum pause between two sweeps in seconds, however long leases are, because a sweep also expires waiting jobs."""


# Every worker sweeps, and none is in charge. A worker in charge could die, and the others would have to notice. The
# store accepts one sweep per interval and refuses the others, which costs each refused worker one short call. A worker
# that was refused pauses longer, so that a hundred idle workers do not make a thousand calls a second.
class Sweeper:
    """Sweeps one queue every tenth of a lease (at most every second), and less often while another worker sweeps."""

    def __init__(
        self, client: QueueClient, reports: Reports, relay: OutboxRelay, *, lease: float, max_stalled: int
    ) -> None:
        self._client = client
        self._reports = reports
        self._relay = relay
        self._max_stalled = max_stalled
        self._interval = min(LONGEST_INTERVAL, lease / 10)
        self._rest = max(self._interval, min(5 * LONGEST_INTERVAL, lease / 4))
        self._gap_ms = round(lease * 500)

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            swept = await self._sweep()
            if self._client.warm_runs is not None:
                await self._review(self._client.warm_runs)
            pause = self._interval if swept else self._rest
            # Not shorter than the interval: the store refuses an early sweep, and the pause after a refusal is long.
            await asyncio.sleep(pause * random.uniform(1.02, 1.2))

    async def _sweep(self) -> bool:
        """Sweep in bounded steps. Return False if another process has just swept, or after an error."""
        resume = False
        try:
            while True:
                if failpoints.armed:
                    failpoints.hit("sweep.before_send")
                reply = await self._client.functions.stalled.sweep(
                    self._max_stalled, round(self._interval * 1000), self._gap_ms, resume=resume
                )
                if reply is None:
                    return False
                self._handle(reply)
                if not reply.more:
                    return True
                resume = True
        except Exception as error:  # noqa: BLE001 - a sweep that fails once must not end sweeping
            self._reports.failed_try(error, self._rest)
            return False

    async def _review(self, warm_runs: WarmRuns) -> None:
        try:
            await warm_runs.review(self._client.functions.reading)
        except Exception as error:  # noqa: BLE001 - as for a sweep
            self._reports.error(error)

    def _handle(self, reply: SweepReply) -> None:
        if reply.recovered or reply.failed:
            self._reports.stalled(reply.recovered, reply.failed)
        if reply.next_fire is not None:
            self._client.scheduler_runner.hint(reply.next_fire)
        if reply.posted:
            self._relay.wake()
