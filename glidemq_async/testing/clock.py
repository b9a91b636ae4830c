"""The clock of a test server. Moving it makes hours of scheduled work happen immediately and in order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, cast

from glidemq_async._internal.blocking import Blocking, blocking
from glidemq_async._internal.loops import Home
from glidemq_async.client.scheduler_runner import SchedulerRunner
from glidemq_async.durations import to_ms
from glidemq_async.functions.callers import Functions
from glidemq_async.storage import Storage

# Each call of a function names a key. The clock belongs to the whole server, and its functions do not read this key.
_NO_QUEUE: Final = "glide:{clock}"


class MovableClock:
    """The clock of a server that was started for a test (`MemoryStorage(testing=True)`).

    The clock runs by itself. A test can move it forward but not back. Waiting workers claim the jobs that become due
    immediately. A job scheduler fires at each of its fire times that the clock passes. Times that the test process
    measures (the timeout of a run, `asyncio.sleep`, leases) remain real time.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def sync(self) -> SyncClock:
        """The methods of the clock for tests without an event loop, for example `clock.sync.advance(60)`."""
        return SyncClock(self, cast("Home", self._storage))

    async def now(self) -> datetime:
        """Return the server's time."""
        now = await self._storage.call("testNow", _NO_QUEUE, [])
        return datetime.fromtimestamp(cast("int", now) / 1000, UTC)

    async def advance(self, seconds: float | timedelta) -> datetime:
        """Move the clock forward by a number of seconds, and return the new time.

        Raises TypeError or ValueError for a bad duration, RuntimeError when a job scheduler cannot be fired on the way.
        """
        # The server stops the clock at each fire time of a job scheduler. It cannot compute the next one, so this
        # process fires the scheduler and then moves the clock on. Moving it in one step would make all fire times but
        # one look missed. If the remaining time and the queues are the same twice in a row, a scheduler did not
        # advance, and the loop would never end.
        left, before = to_ms("seconds", seconds), None
        while True:
            reply = await self._storage.call("testAdvance", _NO_QUEUE, [left])
            left, *due = cast("tuple[int, *tuple[bytes, ...]]", reply)
            if due and (left, due) == before:
                raise RuntimeError(f"a job scheduler of {due[0].decode()} cannot be fired; see the log for the reason")
            before = left, due
            for base in due:
                await self._fire(base.decode())
            if not left:
                return await self.now()

    async def move_to(self, instant: datetime) -> datetime:
        """Move the clock forward to an instant, and return the new time. Raises ValueError for a past or naive one."""
        if instant.tzinfo is None:
            raise ValueError(f"instant must have a time zone, got {instant!r}")
        now = await self.now()
        if instant < now:
            raise ValueError(f"the clock cannot move back to {instant.isoformat()}; it is already {now.isoformat()}")
        return await self.advance(instant - now)

    async def _fire(self, base: str) -> None:
        scheduler_runner = SchedulerRunner(Functions(self._storage, base), "clock")
        try:
            await scheduler_runner.fire()
        finally:
            await scheduler_runner.close()


class SyncClock(Blocking[MovableClock]):
    """The type of `clock.sync`: the coroutines of MovableClock as blocking methods with the same parameters."""

    now = blocking(MovableClock.now)
    advance = blocking(MovableClock.advance)
    move_to = blocking(MovableClock.move_to)
