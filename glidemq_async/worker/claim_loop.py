"""The claim loop: each call settles the runs that have ended and claims jobs for the free slots.

A job is claimed only when a slot is free for it. Batches form by themselves: runs that end while a call is in flight
are settled by the next call. An idle worker makes no calls until it is woken, a job is due, or the poll interval has
passed.
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
from glidemq_async.functions.callers import RequestChannel, SettleReply, SettleRequest
from glidemq_async.functions.outcomes import Completed, Failed, Outcome, Released, Retry
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import entry_of, job_of_claim
from glidemq_async.storage.protocol import FunctionError
from glidemq_async.storage.redis.retry import Backoff
from glidemq_async.worker.runs import EndedRun, Run, unreadable

MAX_SETTLED: Final = 500
"""Maximum number of runs that one call settles. A call blocks the server for all clients, so it must stay short."""
MAX_BYTES: Final = 1024 * 1024
"""Size of the outcomes in bytes at which a call is full."""
MAX_CLAIMED: Final = 1_000
"""Maximum number of jobs that one call claims. A worker with more free slots calls again immediately."""
CLAIM_SHARE: Final = 0.25
"""The part of a lease that a claim may take. After a slower claim, fewer jobs are claimed per call."""
ECHO_SECONDS: Final = 2.0
"""Time to wait for the echo of an idle worker before the wake-up subscription is considered broken."""
ERROR_PAUSE: Final = 1.0
"""Pause after a call that failed although it was retried."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0
"""First and longest pause in seconds between two attempts of a call that the server refuses each time."""
# Timers can fire this much late: event loops wait in whole milliseconds, and some also measure time in milliseconds.
TIMER_GRAIN: Final = 0.0015

# Bound once, because subscripting the class costs as much as creating the job.

_log = logging.getLogger(__name__)


class ClaimLoop:
    """Decides when to call, makes the call, and passes claimed jobs to `start` and settled runs to `settled`.

    The loop is the only place that sends outcomes and claims, and it has at most one call in flight. Three rules
    protect jobs from being lost or run twice:

    - A call is repeated with the same number until the server replies. The server executes a number once.
    - An outcome leaves `_in_call` only after a reply. Until then it counts as `settling`, and its lease is renewed.
    - A job is never claimed without a free slot, so the lease of a claimed job is never spent on waiting.
    """

    def __init__(
        self,
        client: QueueClient,
        channel: RequestChannel,
        consumer: str,
        *,
        lock_ms: int,
        poll_interval: float,
        free_slots: Callable[[], int],
        start: Callable[[Job[Any, Any]], None],
        settled: Callable[[EndedRun, str | None], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._client = client
        self._channel = channel
        self._consumer = consumer
        self._lock_ms = lock_ms
        self._slow = lock_ms / 1000 * CLAIM_SHARE
        self._poll_interval = poll_interval
        self._free_slots = free_slots
        self._start = start
        self._settled = settled
        self._on_error = on_error
        self._ended: list[EndedRun] = []
        self._in_call: list[EndedRun] = []
        self._event = asyncio.Event()
        self._stop_asked = asyncio.Event()
        self._claimable = True
        self._most = MAX_CLAIMED
        """Maximum number of jobs for the next claim, adapted to the time that recent replies took."""
        self._polling = False
        self._stopping = self._finishing = False
        self._left = False
        self._one_by_one = 0
        self._ran: dict[type[Outcome], float] = {Completed: 0.0, Failed: 0.0}
        """Run time in seconds that was not reported yet, of completed and of failed runs."""
        self._registered = False
        """True if the store may expect this worker to react to a wake-up."""
        self._timer: asyncio.Handle | None = None
        self._poll: asyncio.TimerHandle | None = None
        self._echo: asyncio.TimerHandle | None = None
        self._echo_due = False
        self.subscribed = False
        self.healthy = True
        """False while renewals fail and leases may expire. No job is claimed in this time."""
        self.found_nothing = asyncio.Event()
        """Set after a call that left a slot free. Cleared when another claim may find jobs."""
        self.asked_at = 0.0
        """Loop time at which the last answered call was sent. That call saw every job that was due by then."""
        self.last_call = 0.0
        """Loop time of the last reply, for health checks."""
        self.last_try = 0.0
        """Loop time at which a call was last sent, including repeated attempts."""
        self.waiting_since = 0.0
        """Loop time at which the unanswered call was first sent, 0 if no call is in flight."""
        self._broken_at = 0.0
        self.on_broken: Callable[[], None] = lambda: None
        """Called when the server did not know this worker's last call, so the leases must be renewed now."""
        self.reset_subscription: Callable[[], None] = lambda: None
        self.on_posted: Callable[[], None] = lambda: None
        """Called when a call added an entry to the outbox, which must be relayed."""

    # -- events ---------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Claim soon, because a job may be ready."""
        self._claimable = True
        self.found_nothing.clear()
        self._event.set()

    def end(self, ended: EndedRun) -> None:
        """Queue the outcome of a run that has ended. Its slot is free."""
        self._ended.append(ended)
        self.found_nothing.clear()
        self._event.set()

    def echo(self) -> None:
        """Note that the echo to the worker's own channel has arrived, so the subscription works."""
        self._echo_due = False
        if self._echo is not None:
            self._echo.cancel()
            self._echo = None

    def renewed(self, sent: float) -> None:
        """Note that a call sent at this loop time has renewed the leases and reported the lost ones."""
        if sent > self._broken_at:
            self._broken_at = 0.0

    @property
    def stopping(self) -> bool:
        """True after `stop` or `finish`."""
        return self._stopping

    def stop(self) -> None:
        """Claim nothing more. Outcomes are still settled."""
        self._stopping = True
        self._stop_asked.set()
        self._event.set()

    def finish(self) -> None:
        """Let `run` return when every outcome is stored. No run is left."""
        self._stopping = self._finishing = True
        self._stop_asked.set()
        self._event.set()

    @property
    def settling(self) -> list[EndedRun]:
        """The runs that have ended and whose outcome is not stored yet. Their leases must still be renewed."""
        return self._in_call + self._ended

    # -- the loop -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Call whenever there is a reason. Return after `finish`, when every outcome is stored."""
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
        # A stopping worker makes one more call even without an outcome, so that the store does not wake it any more.
        return self._stopping and not self._left

    async def _call_safely(self, slots: int) -> None:
        """Make the call. Any exception is reported; the loop continues and keeps the outcomes."""
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

    def _isolate(self, batch: list[EndedRun]) -> None:
        """Settle a batch one by one after the server refused an outcome in it as malformed, and drop only that one."""
        if len(batch) == 1:
            # Its lease is no longer renewed, so the sweep reclaims the job.
            self._settled(batch[0], "malformed")
            return
        self._ended = batch + self._ended
        self._one_by_one = len(batch)

    def _take_batch(self) -> list[EndedRun]:
        ended = self._ended
        if self._one_by_one and ended:
            self._one_by_one -= 1
            self._ended = ended[1:]
            return ended[:1]
        if len(ended) <= MAX_SETTLED and sum(map(_weight, ended)) <= MAX_BYTES:
            self._ended = []
            return ended
        batch: list[EndedRun] = []
        size = 0
        while len(batch) < min(len(ended), MAX_SETTLED):
            size += _weight(ended[len(batch)])
            if size > MAX_BYTES and batch:
                break  # send a large outcome alone
            batch.append(ended[len(batch)])
        self._ended = ended[len(batch) :]
        return batch

    async def _call(self, slots: int) -> None:
        batch = self._in_call = self._take_batch()
        for run, outcome, _ in batch:
            if (kind := type(outcome)) in self._ran:
                self._ran[kind] += run.seconds
        asked = min(slots, self._most)
        request = self._client.functions.settle_request(
            self._channel,
            self._consumer,
            asked,
            self._lock_ms,
            subscribed=self.subscribed,
            idle=self._registered,
            echo=self._polling,
            verify=self._broken_at > 0,
            ran_ms=(self._whole_ms(Completed), self._whole_ms(Failed)),
        )
        for run, outcome, _ in batch:
            job = run.job
            request.settle(job.id, entry_of(job), job.key, outcome)
        # Set before the call is sent: the echo uses another connection and may arrive before the reply.
        self._echo_due = self._echo_due or self._polling
        self._claimable = self._polling = False
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
        """Claim fewer jobs per call while replies are slow, and more when they are fast again.

        The leases of claimed jobs run while the reply is in transit. On a slow connection a reply with many payloads
        could arrive after they have expired, and the same would happen with every later claim.
        """
        self._most = max(1, claimed // 2) if seconds > self._slow else min(self._most * 2, MAX_CLAIMED)

    def _whole_ms(self, kind: type[Outcome]) -> int:
        """Take the whole milliseconds of the run time. The rest is added to a later call, so that short jobs count."""
        whole = int(self._ran[kind] * 1000)
        self._ran[kind] -= whole / 1000
        return whole

    async def _answer(self, request: SettleRequest) -> SettleReply:
        """Send the call until the server replies.

        Suppose the reply is lost. The server has settled our outcomes and claimed jobs for us, and we know neither. A
        new call would claim other jobs while the first ones wait for their leases to expire. So the same request is
        sent again, with the same number. If the server has executed this number, it returns the stored reply instead of
        executing it again; the jobs in that reply are read again if they are still ours. Nothing here gives up, not
        even when the worker stops: only `Session.release` ends the attempts, and then the sweep of another worker
        reclaims the jobs.
        """
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
            # Count from the start of the attempt. A refusal returns immediately and needs the whole pause; an outage
            # has already taken its time.
            await self._pause(tried + backoff.next() - loop.time())

    async def _pause(self, seconds: float) -> None:
        """Wait before the next attempt, but only briefly once the worker stops."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stop_asked.wait()
                    await asyncio.sleep(ERROR_PAUSE)

    async def _declare_again(self, request: SettleRequest) -> bool:
        """Declare the queue again after it was recreated, so that its jobs can be claimed. Return False on failure."""
        try:
            await self._client.open_again(request.incarnation)
        except StorageUnavailable as error:
            self._on_error(error)
            return False
        self._client.functions.readdress(request)
        return True

    def _after_call(self, reply: SettleReply, batch: list[EndedRun], slots: int, asked: int) -> None:
        loop = asyncio.get_running_loop()
        self.last_call = now = loop.time()
        if reply.jobs and (self._most < MAX_CLAIMED or now - self.asked_at > self._slow):
            self._adapt(now - self.asked_at, len(reply.jobs))
        for position, ended in enumerate(batch):
            self._settled(ended, reply.refused.get(position))
        for claimed in reply.jobs:
            job = job_of_claim(self._client, claimed, reply.now)
            if self._stopping:
                # The stop came while this claim was in flight. Release the job without running it.
                self._ended.append(EndedRun(Run(job), Released(), None))
            else:
                self._start_or_fail(job)
        self._set_timer(loop, reply)
        if self._ended:
            self._event.set()
        if reply.listeners >= 0:
            self._await_echo(loop, reply.listeners)
        if slots > asked == len(reply.jobs):
            # The call was limited to fewer jobs than there are slots.
            self.wake()
        # `found_nothing` means that the worker is idle. Outcomes that are not stored yet contradict that: the end of a
        # run can make the next job of its key ready, and a retry is a job itself.
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
            self.wake()  # the call reached its limit, so more jobs may be ready

    def _wake_at(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        """Wake exactly at this monotonic time. Timers can fire late, so the last moment is a busy loop of callbacks."""
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
            self._ended.append(unreadable(Run(job), error))
            self._event.set()

    def _rearm_poll(self, loop: asyncio.AbstractEventLoop) -> None:
        # Restarting a timer for every call is too expensive. One timer runs, and checks the time of the last call.
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
            seconds = ECHO_SECONDS if listeners else 0.0
            self._echo = loop.call_later(seconds, self._echo_missing)

    def _echo_missing(self) -> None:
        self._echo = None
        _log.warning("queue %s: the wake-up subscription does not respond; connecting again", self._client.queue)
        self.reset_subscription()


def _weight(ended: EndedRun) -> int:
    outcome = ended.outcome
    if isinstance(outcome, Completed):
        return len(outcome.result)
    if isinstance(outcome, Failed):
        # The data of a failed job may be copied to a dead-letter queue.
        return len(outcome.error) + ended.run.job.data_size
    return len(outcome.error) if isinstance(outcome, Retry) else 0


def _pass_before_send(batch: list[EndedRun]) -> None:
    if not batch:
        failpoints.hit("claim.before_send")
    if any(isinstance(ended.outcome, Completed) for ended in batch):
        failpoints.hit("complete.before_send")
    if any(isinstance(ended.outcome, Retry | Failed) for ended in batch):
        failpoints.hit("fail.before_send")
