"""The claim loop: one call at a time settles what has ended and claims what can start now.

A job is claimed only when a slot is free for it. Batches form by themselves: what ends while a call is in flight is
settled by the next one. An idle worker makes no calls: it is woken, sleeps until a due time, or polls rarely.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from glidemq_async._internal import failpoints
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import SerializationError, StorageUnavailable
from glidemq_async.functions.callers import Arg, Lane, SettleReply, SettleRequest
from glidemq_async.jobs.job import Job
from glidemq_async.storage.protocol import FunctionError
from glidemq_async.storage.redis.retry import Backoff
from glidemq_async.stored.failure import failure_of
from glidemq_async.worker.runs import Ended, Run, Verb, failed_option

MAX_SETTLED: Final = 500
"""Runs that one call settles: it stops the server for everybody else, so it must stay short."""
MAX_BYTES: Final = 1024 * 1024
"""Bytes of outcomes after which a call is full."""
MAX_CLAIMED: Final = 1_000
"""Jobs that one call claims; a worker with more free slots calls again at once."""
CLAIM_SHARE: Final = 0.25
"""The share of a lease that a claim may take until its reply is there; after a longer one fewer jobs are claimed."""
ECHO_SECONDS: Final = 2.0
"""How long the echo of an idle worker may be on its way before the wake-up link is taken for silent."""
ERROR_PAUSE: Final = 1.0
"""After a call that failed in spite of its retries."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0
"""Seconds between two tries of a call that the server refuses each time, the longest ones; the first ones are short."""
# By so much timers may fire late: loops wait for whole milliseconds, and some also tell the time in these.
TIMER_GRAIN: Final = 0.0015

# Bound once: to subscript the class for each job would cost as much as to make the job.
_job_of: Final = Job[Any, Any].from_claim

_log = logging.getLogger(__name__)


class ClaimLoop:
    """Decides when to call, makes the call, and hands claimed jobs to `start` and settled runs to `settled`."""

    def __init__(
        self,
        client: QueueClient,
        lane: Lane,
        consumer: str,
        *,
        lock_ms: int,
        poll_interval: float,
        free_slots: Callable[[], int],
        start: Callable[[Job[Any, Any]], None],
        settled: Callable[[Ended, str | None], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._client = client
        self._lane = lane
        self._consumer = consumer
        self._lock_ms = lock_ms
        self._slow = lock_ms / 1000 * CLAIM_SHARE
        self._poll_interval = poll_interval
        self._free_slots = free_slots
        self._start = start
        self._settled = settled
        self._on_error = on_error
        self._ended: list[Ended] = []
        self._in_call: list[Ended] = []
        self._event = asyncio.Event()
        self._stop_asked = asyncio.Event()
        self._claimable = True
        self._most = MAX_CLAIMED
        """Jobs that the next call claims at most: as many as this link has carried in time."""
        self._polling = False
        self._stopping = self._finishing = False
        self._left = False
        self._one_by_one = 0
        self._ran: dict[Verb, float] = {"c": 0.0, "f": 0.0}
        self._registered = False
        """Whether the store may count on waking this worker."""
        self._timer: asyncio.Handle | None = None
        self._poll: asyncio.TimerHandle | None = None
        self._echo: asyncio.TimerHandle | None = None
        self._echo_due = False
        self.subscribed = False
        self.healthy = True
        """False while leases may be running out unrenewed: nothing is claimed then."""
        self.found_nothing = asyncio.Event()
        """Set after a call that left a free slot unused, cleared by the next wish to claim."""
        self.asked_at = 0.0
        """Loop time at which the last answered call was sent: it saw every job that was due by then."""
        self.last_call = 0.0
        """Loop time of the last answered call: the worker's sign of life."""
        self.last_try = 0.0
        """Loop time at which a call was last sent, for the first time or again."""
        self.waiting_since = 0.0
        """Loop time at which the first call was sent that is not answered yet, 0 when none is out."""
        self._broken_at = 0.0
        self.on_broken: Callable[[], None] = lambda: None
        """Called when the server did not know this worker's last call: leases are to be renewed now."""
        self.reset_subscription: Callable[[], None] = lambda: None
        self.on_posted: Callable[[], None] = lambda: None
        """Told when a call posted something for another queue, which is to be relayed."""

    # -- what others say ------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """There may be something to claim."""
        self._claimable = True
        self.found_nothing.clear()
        self._event.set()

    def end(self, ended: Ended) -> None:
        """A run has ended; its slot is free."""
        self._ended.append(ended)
        self.found_nothing.clear()
        self._event.set()

    def echo(self) -> None:
        """The echo to our own channel arrived: the link delivers."""
        self._echo_due = False
        if self._echo is not None:
            self._echo.cancel()
            self._echo = None

    def renewed(self, sent: float) -> None:
        """Leases were renewed by a call sent at that loop time, and what is lost is known."""
        if sent > self._broken_at:
            self._broken_at = 0.0

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop claiming."""
        return self._stopping

    def stop(self) -> None:
        """Claim nothing more; outcomes are still settled."""
        self._stopping = True
        self._stop_asked.set()
        self._event.set()

    def finish(self) -> None:
        """No run is left: `run` returns when every outcome is stored."""
        self._stopping = self._finishing = True
        self._stop_asked.set()
        self._event.set()

    @property
    def settling(self) -> list[Ended]:
        """Ended runs whose outcome is not stored yet; their leases must be renewed still."""
        return self._in_call + self._ended

    # -- the loop -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Call whenever there is a reason; returns after `finish`, when every outcome is stored."""
        try:
            while not (self._finishing and self._left and not self._ended):
                await self._event.wait()
                self._event.clear()
                slots = 0 if self._stopping or not self.healthy else self._free_slots()
                if self._ended or self._must_leave() or (self._claimable and slots > 0):
                    await self._call_safely(slots)
        finally:
            for timer in (self._timer, self._poll, self._echo):
                if timer is not None:
                    timer.cancel()

    def _must_leave(self) -> bool:
        # Even without an outcome to settle, one call says that this worker is idle no more.
        return self._stopping and not self._left

    async def _call_safely(self, slots: int) -> None:
        """Make the call; whatever it raises, the loop goes on and no outcome is dropped."""
        leaving = self._stopping
        try:
            await self._call(slots)
        except Exception as error:  # noqa: BLE001 - a loop that ends would leave a worker deaf
            batch, self._in_call = self._in_call, []
            self._registered = True
            self._on_error(error)
            if isinstance(error, FunctionError) and error.code == "ARGUMENT" and batch:
                self._isolate(batch)
            else:
                self._ended = batch + self._ended
                await asyncio.sleep(ERROR_PAUSE)
            self.wake()
        self._left = leaving

    def _isolate(self, batch: list[Ended]) -> None:
        """One outcome of a batch is refused as malformed: settle them one by one, and give up the one that is."""
        if len(batch) == 1:
            # Its lease is renewed no more, so the sweep takes the job back.
            self._settled(batch[0], "malformed")
            return
        self._ended = batch + self._ended
        self._one_by_one = len(batch)

    def _take_batch(self) -> list[Ended]:
        ended = self._ended
        if self._one_by_one and ended:
            self._one_by_one -= 1
            self._ended = ended[1:]
            return ended[:1]
        if len(ended) <= MAX_SETTLED and sum(map(_weight, ended)) <= MAX_BYTES:
            self._ended = []
            return ended
        batch: list[Ended] = []
        size = 0
        while len(batch) < min(len(ended), MAX_SETTLED):
            size += _weight(ended[len(batch)])
            if size > MAX_BYTES and batch:
                break  # a large outcome travels alone
            batch.append(ended[len(batch)])
        self._ended = ended[len(batch) :]
        return batch

    async def _call(self, slots: int) -> None:
        batch = self._in_call = self._take_batch()
        settled: list[Arg] = []
        for ended in batch:
            job = ended.run.job
            token = job.entry if job.key is None else f"{job.entry} {job.key}"
            settled += (ended.verb, job.id, token, ended.payload, ended.option)
            if ended.verb in self._ran:
                self._ran[ended.verb] += ended.run.seconds
        flags = ("e" if self._polling else "") + ("i" if self._registered else "") + ("" if self.subscribed else "u")
        if self._broken_at:
            flags += "v"
        # Due before the call is sent: the echo has a link of its own and may overtake the reply.
        self._echo_due = self._echo_due or self._polling
        self._claimable = self._polling = False
        asked = min(slots, self._most)
        request = self._client.functions.settle_request(
            self._lane,
            self._consumer,
            asked,
            self._lock_ms,
            flags,
            len(batch),
            settled,
            (self._whole_ms("c"), self._whole_ms("f")),
        )
        if failpoints.armed:
            _pass_before_send(batch)
        asked_at = asyncio.get_running_loop().time()
        self.waiting_since = self.waiting_since or asked_at
        reply = await self._answer(request)
        self.asked_at, self.waiting_since = asked_at, 0.0
        if failpoints.armed:
            failpoints.hit("complete.after_reply" if batch else "claim.after_reply")
            if batch and reply.jobs:
                failpoints.hit("claim.after_reply")
        self._in_call = []
        if reply.is_broken:
            self._broken_at = asyncio.get_running_loop().time()
            self.on_broken()
        if reply.posted:
            self.on_posted()
        self._registered = self.subscribed and len(reply.jobs) < slots
        self._after_call(reply, batch, slots, asked)

    def _adapt(self, seconds: float, claimed: int) -> None:
        """Claim fewer jobs at a time while replies take long, and more again when they do not.

        The leases of claimed jobs run while the reply is on its way. On a slow link a reply with many payloads would
        come when they have run out, each time again.
        """
        self._most = max(1, claimed // 2) if seconds > self._slow else min(self._most * 2, MAX_CLAIMED)

    def _whole_ms(self, verb: Verb) -> int:
        """Take the whole milliseconds of what was run; the rest is told with a later call, for short jobs add up."""
        whole = int(self._ran[verb] * 1000)
        self._ran[verb] -= whole / 1000
        return whole

    async def _answer(self, request: SettleRequest) -> SettleReply:
        """Send the same call until it is answered: it may have been executed, and only its number can tell."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            self.last_try = tried = loop.time()
            try:
                return await self._client.functions.settle_and_claim(request)
            except StorageUnavailable as error:
                self._on_error(error)
            except FunctionError as error:
                if error.code != "UNDECLARED":
                    raise
                if await self._declare_again(request):
                    continue
            # A refusal comes back immediately, and would so for ever; an outage has taken its time already.
            await self._pause(tried + backoff.next() - loop.time())

    async def _pause(self, seconds: float) -> None:
        """Wait before the next try; only a little when the worker stops meanwhile."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stop_asked.wait()
                    await asyncio.sleep(ERROR_PAUSE)

    async def _declare_again(self, request: SettleRequest) -> bool:
        """Declare the queue, which was made anew, so that its jobs can be claimed; returns whether that worked."""
        try:
            await self._client.open_again(request.incarnation)
        except StorageUnavailable as error:
            self._on_error(error)
            return False
        self._client.functions.readdress(request)
        return True

    def _after_call(self, reply: SettleReply, batch: list[Ended], slots: int, asked: int) -> None:
        loop = asyncio.get_running_loop()
        self.last_call = now = loop.time()
        if reply.jobs and (self._most < MAX_CLAIMED or now - self.asked_at > self._slow):
            self._adapt(now - self.asked_at, len(reply.jobs))
        for position, ended in enumerate(batch):
            self._settled(ended, reply.refused.get(position))
        for claimed in reply.jobs:
            job = _job_of(self._client, claimed, reply.now)
            if self._stopping:
                # Claimed by the call that was in flight when the stop came: it goes back unstarted.
                self._ended.append(Ended(Run(job), "b", b"", "", None))
            else:
                self._start_or_fail(job)
        self._set_timer(loop, reply)
        if self._ended:
            self._event.set()
        if reply.listeners >= 0:
            self._await_echo(loop, reply.listeners)
        if slots > asked == len(reply.jobs):
            # There are more slots than this call was to fill.
            self.wake()
        # An outcome that is not stored yet may let another job start: an ended run of a key, or a retry.
        if len(reply.jobs) < slots and not self._claimable and not self._ended:
            self.found_nothing.set()
        else:
            self.found_nothing.clear()
        self._rearm_poll(loop)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, reply: SettleReply) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if reply.due > reply.now:
            self._wake_at(loop, time.monotonic() + reply.wait)
        elif reply.due:
            self.wake()  # the call stopped at a bound: there is more

    def _wake_at(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        """Wake at that monotonic time, and exactly: timers fire late, so the last moment is spun through."""
        rest = at - time.monotonic()
        if rest > TIMER_GRAIN:
            self._timer = loop.call_later(rest - TIMER_GRAIN, self._wake_at, loop, at)
        elif rest > 0:
            self._timer = loop.call_soon(self._wake_at, loop, at)
        else:
            self._timer = None
            self.wake()

    def _start_or_fail(self, job: Job[Any, Any]) -> None:
        try:
            self._start(job)
        except SerializationError as error:
            option = failed_option("", "malformed", "malformed")
            self._ended.append(Ended(Run(job), "f", failure_of(error).packed(), option, error))
            self._event.set()

    def _rearm_poll(self, loop: asyncio.AbstractEventLoop) -> None:
        # Rearming a timer for every call would cost more than it is worth: one runs on and looks at the time.
        if self._poll is None and not self._stopping:
            self._poll = loop.call_later(self._poll_interval, self._on_poll)

    def _on_poll(self) -> None:
        self._poll = None
        loop = asyncio.get_running_loop()
        rest = self.last_call + self._poll_interval - loop.time()
        if rest > 0:
            self._poll = loop.call_later(rest, self._on_poll)
            return
        self._polling = True
        self.wake()

    def _await_echo(self, loop: asyncio.AbstractEventLoop, listeners: int) -> None:
        if self._echo_due and self._echo is None and self.subscribed:
            patience = ECHO_SECONDS if listeners else 0.0
            self._echo = loop.call_later(patience, self._echo_missing)

    def _echo_missing(self) -> None:
        self._echo = None
        _log.warning("queue %s: the wake-up link is silent, connecting it again", self._client.queue)
        self.reset_subscription()


def _weight(ended: Ended) -> int:
    # The data of a job that fails may be copied to a dead-letter queue.
    return len(ended.payload) + (ended.run.job.data_size if ended.verb == "f" else 0)


def _pass_before_send(batch: list[Ended]) -> None:
    if not batch:
        failpoints.hit("claim.before_send")
    if any(ended.verb == "c" for ended in batch):
        failpoints.hit("complete.before_send")
    if any(ended.verb in {"r", "f"} for ended in batch):
        failpoints.hit("fail.before_send")
