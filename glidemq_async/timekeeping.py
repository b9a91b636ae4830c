"""Firing schedulers: what every process that has a queue open does beside its own work.

The store names a first process, which comes at the next slot, and a second one, which comes a little later in case the
first one died; all others come round once in a while. Whoever comes fires what is due; the store lets each slot fire
once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import weakref
from typing import Final

from glidemq_async.errors import GlideMQError, QueueFull, StorageUnavailable
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.scheduler_calls import DueReply, DueScheduler
from glidemq_async.schedule import Schedule, Slots

__all__ = ["Timekeeper"]

PATROL: Final = (30.0, 60.0)
"""How often a process without a role looks for what the others may have left behind."""
FIRST_LOOK: Final = (0.05, 0.5)
"""When a queue that has schedulers was opened: not at once, for most who open one for a moment only."""
BEHIND: Final = (0.5, 1.0)
"""How long after a slot somebody without a role looks whether it was fired."""
LONGEST_PAUSE: Final = 30.0
"""Between two tries while the storage is away."""
LEAVE_SECONDS: Final = 2.0
"""How long giving up a role may take when the queue closes; without it the role is free after a slot."""
SLOTS_A_CALL: Final = 50
"""Slots of one scheduler that one call fires: each adds a job."""

_log = logging.getLogger(__name__)


class Timekeeper:
    """Fires the schedulers of one queue in one process, from `start` to `close`."""

    def __init__(self, functions: Functions, process: str) -> None:
        self._functions = functions
        self.process = process
        self._timer: asyncio.TimerHandle | None = None
        self._round: asyncio.Task[None] | None = None
        # Set during a round: come again not later than this (loop time).
        self._sooner = float("inf")
        self._holds_role = False
        self._failures = 0
        # Schedulers that cannot be fired here, until this time: they must not keep the others from being fired.
        self._ignored: set[str] = set()
        self._ignored_until = 0.0
        self._started = self._closed = False

    def start(self, *, any_scheduled: bool) -> None:
        """Begin; idempotent. `any_scheduled` says whether the queue had schedulers when it was opened."""
        if not self._started and not self._closed:
            self._started = True
            self._arm(random.uniform(*(FIRST_LOOK if any_scheduled else PATROL)))

    def expect(self, delay: float, *, holds_role: bool = False) -> None:
        """Come in so many seconds, unless that is planned sooner anyway."""
        if self._closed or not self._started:
            return
        self._holds_role = self._holds_role or holds_role
        at = asyncio.get_running_loop().time() + max(0.0, delay)
        self._sooner = min(self._sooner, at)
        if self._round is None and (self._timer is None or at < self._timer.when()):
            self._arm(max(0.0, delay))

    def hint(self, delay: float) -> None:
        """Somebody saw that a slot comes in so many seconds: look afterwards whether it was fired."""
        if not self._holds_role:
            self.expect(max(0.0, delay) + random.uniform(*BEHIND))

    async def fire(self) -> None:
        """Fire what is due now; for those who move the clock by hand."""
        await self._come()

    async def close(self) -> None:
        """Stop, and give up a role at once; idempotent."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._round is not None:
            self._round.cancel()
            await asyncio.wait([self._round])
        if self._holds_role:
            self._holds_role = False
            try:
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self._functions.leave_schedules(self.process)
            except (TimeoutError, GlideMQError) as error:
                _log.info("could not give up the role of firing schedulers, another process takes over: %r", error)

    def _arm(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # A queue that nobody closes must be free to vanish: a timer does not hold it, as a sleeping task would.
        me: weakref.ref[Timekeeper] = weakref.ref(self)
        self._timer = asyncio.get_running_loop().call_later(delay, self._ring, me)

    @staticmethod
    def _ring(reference: weakref.ref[Timekeeper]) -> None:
        timekeeper = reference()
        if timekeeper is not None:
            timekeeper.begin()

    def begin(self) -> None:
        """Come now, unless that is happening already."""
        if not self._closed and self._round is None:
            self._timer = None
            self._sooner = float("inf")
            self._round = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            pause = await self._come()
            self._failures = 0
        except Exception as error:  # noqa: BLE001 - one failure must not end the firing of schedulers
            self._failures += 1
            pause = min(LONGEST_PAUSE, 2.0 ** min(self._failures, 10) / 2) * random.uniform(0.5, 1.0)
            _log.warning("schedulers of %s: could not fire, trying again in %.1f s: %r", self._base, pause, error)
        self._round = None
        if not self._closed:
            now = asyncio.get_running_loop().time()
            self._arm(max(0.0, min(pause, self._sooner - now)))

    @property
    def _base(self) -> str:
        return self._functions.base

    async def _come(self) -> float:
        """Fire until nothing is due; returns in how many seconds to come again."""
        loop = asyncio.get_running_loop()
        if self._ignored and loop.time() >= self._ignored_until:
            self._ignored.clear()
        while True:
            reply = await self._functions.take_schedules(self.process, sorted(self._ignored))
            self._holds_role = reply.holds_role
            if not reply.due:
                return self._pause(reply)
            for due in reply.due:
                await self._fire(due, reply.now)

    def _pause(self, reply: DueReply) -> float:
        patrol = random.uniform(*PATROL)
        if not reply.holds_role:
            return patrol
        # A slot that cannot be fired here stays due: that is no reason to come at once.
        return min(patrol, max((reply.at - reply.now) / 1000, 1.0 if self._ignored else 0.0))

    async def _fire(self, due: DueScheduler, now: int) -> None:
        try:
            schedule, anchor = Schedule.from_wire(due.spec)
            plan = Slots(schedule, anchor).plan(due.slot, now)
            left, skipped = plan.fire, plan.skipped
            while True:
                slots, left = left[:SLOTS_A_CALL], left[SLOTS_A_CALL:]
                next_slot = left[0] if left else plan.next
                if not await self._functions.fire_scheduler(due, slots, skipped, next_slot) or not left:
                    return
                due, skipped = due._replace(slot=left[0]), 0
        except (StorageUnavailable, QueueFull):
            raise
        except GlideMQError as error:
            self._ignore(due.id, error)

    def _ignore(self, scheduler_id: str, error: Exception) -> None:
        _log.error("scheduler %r of %s cannot be fired here: %s", scheduler_id, self._base, error)
        self._ignored.add(scheduler_id)
        self._ignored_until = asyncio.get_running_loop().time() + PATROL[1]
