"""A server's clock that a test moves: what takes hours happens at once, in the order of its instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, cast

from glidemq_async._internal.blocking import Blocking, Home
from glidemq_async.client.scheduler_runner import Timekeeper
from glidemq_async.durations import to_ms
from glidemq_async.functions.callers import Functions
from glidemq_async.storage import Storage
from glidemq_async.testing.sync_harness import SyncClock

_NO_QUEUE: Final = "glide:{clock}"


class MovableClock:
    """The clock of a server that was started for a test (`MemoryStorage(testing=True)`).

    It runs on by itself and can be moved forward, never back. Jobs that come due are claimed at once by workers that
    wait for them. Each slot of a job scheduler that is passed fires at its own instant, none is missed. What the
    test's own process measures (the timeout of a run, `asyncio.sleep`, leases) stays real time.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def sync(self) -> SyncClock:
        """The same methods for a test without an event loop: `clock.sync.advance(60)` waits."""
        return cast("SyncClock", Blocking(self, cast("Home", self._storage)))

    async def now(self) -> datetime:
        """Return the server's time."""
        now = await self._storage.call("testNow", _NO_QUEUE, [])
        return datetime.fromtimestamp(cast("int", now) / 1000, UTC)

    async def advance(self, seconds: float | timedelta) -> datetime:
        """Move on by so many seconds; returns the new time.

        Raises TypeError or ValueError for a bad duration, RuntimeError when a job scheduler on the way cannot be fired.
        """
        left, before = to_ms("seconds", seconds), None
        while True:
            reply = await self._storage.call("testAdvance", _NO_QUEUE, [left])
            left, *due = cast("tuple[int, *tuple[bytes, ...]]", reply)
            if due and (left, due) == before:
                raise RuntimeError(f"a job scheduler of {due[0].decode()} cannot be fired; the log says why")
            before = left, due
            for base in due:
                await self._fire(base.decode())
            if not left:
                return await self.now()

    async def move_to(self, instant: datetime) -> datetime:
        """Move on to an instant; returns the new time. Raises ValueError for a past or a naive one."""
        if instant.tzinfo is None:
            raise ValueError(f"instant must have a time zone, got {instant!r}")
        now = await self.now()
        if instant < now:
            raise ValueError(f"the clock cannot go back: asked for {instant.isoformat()}, it is {now.isoformat()}")
        return await self.advance(instant - now)

    async def _fire(self, base: str) -> None:
        timekeeper = Timekeeper(Functions(self._storage, base), "clock")
        try:
            await timekeeper.fire()
        finally:
            await timekeeper.close()
