"""Fires the job schedulers of a queue. Every process that has the queue open takes part.

The store assigns a first process, which wakes at the next fire time, and a second one, which wakes a little later. All
others check rarely. The first process fires the oldest fire times, and each other one a different part of the due ones.
The store accepts each fire time once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Final

from glidemq_async._internal.problems import problem_of
from glidemq_async.errors import GlideMQError
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Wait
from glidemq_async.functions.schedulers import DueReply, DueScheduler, Firing
from glidemq_async.schedules.schedule import FireTimes
from glidemq_async.schedules.stored_schedule import read_schedule
from glidemq_async.stored.names import QueueKeys

__all__ = ["SchedulerRunner"]

PATROL: Final = (30.0, 60.0)
"""Interval at which a process without a role checks for missed work of the others."""
FIRST_LOOK: Final = (0.05, 0.5)
"""Delay of the first check after a queue with schedulers was opened, because many queues are open only briefly."""
BEHIND: Final = (0.5, 1.0)
"""Delay after a fire time at which a process without a role checks whether it was fired."""
LONGEST_PAUSE: Final = 30.0
"""Pause between two attempts while the storage is unreachable."""
LEAVE_SECONDS: Final = 2.0
"""Time limit for giving up a role when the queue closes. Otherwise the role expires after the next fire time."""
FIRE_TIMES_A_CALL: Final = 100
"""Maximum number of fire times in one call. The server fires fewer if the call reaches its time limit."""
UNREADABLE_SECONDS: Final = 600.0
"""Pause before a scheduler that this process cannot read is tried again, unless it is changed before."""
LOGGED_UNREADABLE: Final = 20
"""Maximum number of unreadable schedulers that are named in the log."""
LOOP_SECONDS: Final = 0.005
"""Maximum time for which planning may block the event loop."""

_log = logging.getLogger(__name__)


# Every process that has the queue open runs one of these, and any number of them may fire at the same moment. The
# server makes that safe: a call names the stored fire time that it has seen, and the server advances a scheduler only
# if that fire time is still the stored one. The others get "moved" and do nothing. The roles only save calls, and a
# lost role costs some seconds.
#
# Fire times are computed here and not on the server, because Lua has no time zones and no cron parser. Computing them
# takes milliseconds of Python for long lists, so `_plan` yields to the event loop.
#
# `_sooner` connects `expect` with a running round. A round that was planned before an upsert would otherwise sleep past
# the new fire time.
class SchedulerRunner:
    """Fires the schedulers of one queue in one process, from `start` to `close`."""

    def __init__(self, functions: Functions, process: str) -> None:
        self._functions = functions
        self.process = process
        self._timer: asyncio.TimerHandle | None = None
        self._round: asyncio.Task[None] | None = None
        # Set during a round: the latest loop time for the next round.
        self._sooner = float("inf")
        self._holds_role = False
        self._failures = 0
        # This process cannot read the due schedulers up to this one (fire time, id). It does not request them again
        # before `_behind_until`.
        self._behind: tuple[int, str] | None = None
        self._behind_until = 0.0
        self._unreadable: set[str] = set()
        self._started = self._closed = False

    @property
    def is_started(self) -> bool:
        """True if this process fires schedulers."""
        return self._started

    def start(self, *, any_scheduled: bool) -> None:
        """Start. Idempotent. `any_scheduled` is true if the queue had schedulers when it was opened."""
        if not self._started and not self._closed:
            self._started = True
            self._arm(random.uniform(*(FIRST_LOOK if any_scheduled else PATROL)))

    def expect(self, delay: float, *, holds_role: bool = False) -> None:
        """Run a round after `delay` seconds, unless an earlier one is planned."""
        if self._closed or not self._started:
            return
        self._holds_role = self._holds_role or holds_role
        at = asyncio.get_running_loop().time() + max(0.0, delay)
        self._sooner = min(self._sooner, at)
        if self._round is None and (self._timer is None or at < self._timer.when()):
            self._arm(max(0.0, delay))

    def hint(self, delay: float) -> None:
        """Check a fire time that another client has reported, shortly after it has come in `delay` seconds."""
        if not self._holds_role:
            self.expect(max(0.0, delay) + random.uniform(*BEHIND))

    async def fire(self) -> None:
        """Fire what is due now. Used by tests that control the clock."""
        await self._fire_all_due()

    async def close(self) -> None:
        """Stop, and give up the role immediately. Idempotent."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._round is not None:
            self._round.cancel()
            # Not `await self._round`, which would raise the CancelledError of the round here.
            await asyncio.wait([self._round])
        if self._holds_role:
            self._holds_role = False
            try:
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self._functions.schedulers.leave(self.process)
            except (TimeoutError, GlideMQError) as error:
                _log.info(
                    "could not give up the scheduler role; another process takes over after it expires: %r", error
                )

    def _arm(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # A timer does not reference the queue strongly, so a queue that is never closed can be collected. A sleeping
        # task would keep it alive.
        me: weakref.ref[SchedulerRunner] = weakref.ref(self)
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer, me)

    @staticmethod
    def _on_timer(reference: weakref.ref[SchedulerRunner]) -> None:
        scheduler_runner = reference()
        if scheduler_runner is not None:
            scheduler_runner.begin()

    def begin(self) -> None:
        """Start a round now, unless one is running."""
        if not self._closed and self._round is None:
            self._timer = None
            self._sooner = float("inf")
            self._round = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            pause = await self._fire_all_due()
            self._failures = 0
        except Exception as error:  # noqa: BLE001 - one failure must not end the firing of schedulers
            self._failures += 1
            pause = min(LONGEST_PAUSE, 2.0 ** min(self._failures, 10) / 2) * random.uniform(0.5, 1.0)
            queue = QueueKeys.queue_of(self._base)
            problem = problem_of(error) if isinstance(error, GlideMQError) else repr(error)
            _log.warning("could not fire the schedulers of queue %s; next attempt in %.1f s: %s", queue, pause, problem)
        self._round = None
        if not self._closed:
            now = asyncio.get_running_loop().time()
            self._arm(max(0.0, min(pause, self._sooner - now)))

    @property
    def _base(self) -> str:
        return self._functions.caller.base

    async def _fire_all_due(self) -> float:
        """Fire until nothing is due. Return the seconds until the next round."""
        if self._behind and asyncio.get_running_loop().time() >= self._behind_until:
            self._behind = None
        spread = True
        while True:
            reply = await self._functions.schedulers.take(
                self.process, self._behind, random.getrandbits(30) if spread else None
            )
            self._holds_role = reply.holds_role
            if not reply.due:
                return self._pause(reply)
            fired, unreadable = await self._fire_page(reply)
            if spread and not reply.is_first:
                # This part contains nothing that this process can fire, so go through all schedulers from the oldest
                # on.
                spread = fired > 0
            elif unreadable:
                # A newer version may store schedules that this one cannot read. They stay due and come first in every
                # list. Without this mark a page of them would hide everything behind it. Processes of the newer version
                # fire them.
                self._behind = unreadable[-1].fire_time, unreadable[-1].id
                self._behind_until = asyncio.get_running_loop().time() + UNREADABLE_SECONDS

    def _pause(self, reply: DueReply) -> float:
        patrol = random.uniform(*PATROL)
        if not reply.holds_role:
            return patrol
        return min(patrol, max((reply.at - reply.now) / 1000, 0.0))

    async def _fire_page(self, reply: DueReply) -> tuple[int, list[DueScheduler]]:
        """Fire one page of schedulers. Return how many advanced, and the unreadable ones, in order."""
        planned, refused = await self._plan(reply)
        moved = 0
        # The durability belongs to a call and not to a job, so each durability needs its own calls.
        waits: set[Wait] = {firing.due.wait for firing in planned}
        for wait in waits:
            left = deque(firing for firing in planned if firing.due.wait == wait)
            while left:
                moved += await self._fire_some(left, wait, refused)
        return moved, [due for due in reply.due if due.id in refused]

    async def _plan(self, reply: DueReply) -> tuple[list[Firing], set[str]]:
        loop = asyncio.get_running_loop()
        planned: list[Firing] = []
        refused: set[str] = set()
        began = loop.time()
        for due in reply.due:
            if loop.time() - began > LOOP_SECONDS:
                await asyncio.sleep(0)
                began = loop.time()
            try:
                schedule, anchor = read_schedule(due.spec)
                plan = FireTimes(schedule, anchor).plan(due.fire_time, reply.now, reply.since)
            except GlideMQError as error:
                self._refuse(due.id, str(error), refused)
            else:
                planned.append(Firing(due, plan.fire, plan.skipped, plan.next))
        return planned, refused

    async def _fire_some(self, left: deque[Firing], wait: Wait, refused: set[str]) -> int:
        """Make one call for the first items and remove the finished ones. Return how many schedulers advanced."""
        batch = _batch(left)
        rest: list[Firing] = []
        moved = 0
        # The server stops at its time limit. It may have done only some fire times of the last scheduler in its reply.
        # The other fire times of this scheduler go to the front of `left`. The schedulers without a reply have stayed
        # in `left`.
        for answer in await self._functions.schedulers.fire(batch, wait):
            firing = left.popleft()
            if isinstance(answer, int):
                moved += 1
                if (remaining := firing.after(answer)) is not None:
                    rest.append(remaining)
            elif answer != "moved":
                self._refuse(firing.due.id, answer, refused)
        left.extendleft(reversed(rest))
        return moved

    def _refuse(self, scheduler_id: str, why: str, refused: set[str]) -> None:
        refused.add(scheduler_id)
        if scheduler_id in self._unreadable or len(self._unreadable) >= LOGGED_UNREADABLE:
            return
        self._unreadable.add(scheduler_id)
        _log.error("scheduler %r of %s cannot be fired here: %s", scheduler_id, self._base, why)


def _batch(firings: Iterable[Firing]) -> list[Firing]:
    """Return the first items whose fire times fit into one call."""
    batch: list[Firing] = []
    room = FIRE_TIMES_A_CALL
    for firing in firings:
        batch.append(firing.first(room))
        room -= len(firing.fire_times)
        if room <= 0:
            break
    return batch
