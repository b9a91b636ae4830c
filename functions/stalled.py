"""Typed calls of the functions that reclaim jobs: `stalled.lua`."""

from __future__ import annotations

from typing import NamedTuple, cast

from glidemq_async.functions.calling import Calls, text, texts


class SweepReply(NamedTuple):
    """Reply of `sweep`. `posted`: the outbox is not empty."""

    more: bool
    recovered: list[str]
    failed: list[str]
    posted: bool
    next_fire: float | None
    """Seconds until the next fire time of a job scheduler, None without one."""


class StalledCalls(Calls):
    """Calls of the functions in `stalled.lua`."""

    __slots__ = ()

    async def sweep(self, max_stalled: int, interval_ms: int, gap_ms: int, *, resume: bool) -> SweepReply | None:
        """Reclaim stalled jobs and clean up, in one bounded step. Return None if another process has just swept."""
        # Any number of workers may call this. The server accepts one sweep per interval; `resume` continues a sweep
        # that ended with `more`, without waiting for the next interval.
        reply = await self._caller.once("sweep", [max_stalled, interval_ms, gap_ms, int(resume)])
        if not reply:
            return None
        more, recovered, failed, posted, due = cast("list[object]", reply)
        next_fire = int(text(due)) / 1000 if due else None
        return SweepReply(more == 1, texts(recovered), texts(failed), posted == 1, next_fire)

    async def close_worker(self, consumer: str) -> int:
        """Return all jobs that are pending for a consumer that stops, and remove the consumer."""
        # In steps, because a worker may have thousands of pending entries. The consumer is removed by the last step:
        # entries of a removed consumer would no longer be pending, and their jobs would be lost.
        returned = 0
        while True:
            more, count = cast("list[int]", await self._caller.once("closeWorker", [consumer]))
            returned += count
            if not more:
                return returned
