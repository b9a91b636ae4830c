"""The claim loop: each call settles the runs that have ended and claims jobs for the free slots.

A job is claimed only when a slot is free for it. Batches form by themselves: runs that end while a call is in flight
are settled by the next call. An idle worker makes no calls until it is woken, a job is due, or the poll interval has
passed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Final, Protocol

from glidemq_async._internal import failpoints
from glidemq_async._internal.wait_point import TaskEvent
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import SerializationError
from glidemq_async.functions.calling import RequestChannel, TransactionStore
from glidemq_async.functions.claimed_jobs import ClaimedJob
from glidemq_async.functions.outcomes import Completed, Failed, Retry
from glidemq_async.functions.push import JobsPushed, PlainPushed
from glidemq_async.functions.settle import SettleReply, SettleRequest
from glidemq_async.jobs.snapshot import started_ms
from glidemq_async.storage.protocol import FunctionError
from glidemq_async.worker.call_sender import CallSender
from glidemq_async.worker.claimed_runs import ClaimedRuns, run_of_entry, runs_of_claim
from glidemq_async.worker.direct_claims import DirectClaims
from glidemq_async.worker.due_timer import DueTimer
from glidemq_async.worker.echo_check import EchoCheck
from glidemq_async.worker.outcome_queue import OutcomeQueue
from glidemq_async.worker.push_inbox import PushInbox
from glidemq_async.worker.reports import Reports
from glidemq_async.worker.run_times import RunTimes
from glidemq_async.worker.runs import Run, fail_unreadable
from glidemq_async.worker.slots import Slots

MAX_CLAIMED: Final = 1_000
"""Maximum number of jobs that one call claims. A worker with more free slots calls again immediately."""
CLAIM_SHARE: Final = 0.25
"""The part of a lease that a claim may take. After a slower claim, fewer jobs are claimed per call."""
ERROR_PAUSE: Final = 1.0
"""Pause after a call that failed although it was retried."""

_log = logging.getLogger(__name__)


class LoopOwner(Protocol):
    """The parts of a session that the claim loop calls."""

    def take_slots(self, claimed: ClaimedRuns) -> list[tuple[Run, SerializationError]]:
        """Take slots for claimed jobs. Return those whose options cannot be decoded, and why."""
        ...

    def start_runs(self) -> None:
        """Start the runs that have taken a slot and have not started."""
        ...

    def start_pushed(self, run: Run) -> int | None:
        """Take a slot for the run of a pushed plain job, and start it.

        Return the number of free slots, or None if the start needs the other methods.
        """
        ...

    def renew_leases(self) -> None:
        """Renew the leases now, because the server did not know the last call and some leases may be lost."""
        ...

    def relay_outbox(self) -> None:
        """Relay the outbox, to which a call has added an entry."""
        ...

    def reset_subscription(self) -> None:
        """Connect the subscription of the wake-up channel again."""
        ...

    def on_drained(self) -> None:
        """Note that a claim has found nothing after the last run has ended."""
        ...


class ClaimLoop:
    """Decides when to call, makes the call, starts the claimed jobs and reports the settled runs.

    The loop is the only place that sends outcomes and claims, and it has at most one call in flight. Three rules
    protect jobs from being lost or run twice:

    - A call is repeated with the same number until the server replies. The server executes a number once.
    - An outcome stays in `outcomes` until a reply confirms it. Until then its lease is renewed.
    - A job is never claimed without a free slot, so the lease of a claimed job is never spent on waiting.
    """

    def __init__(
        self,
        client: QueueClient,
        consumer: str,
        slots: Slots,
        reports: Reports,
        owner: LoopOwner,
        *,
        lock_ms: int,
        poll_interval: float,
        accepts_pushes: bool,
    ) -> None:
        self._client = client
        self._channel = RequestChannel(consumer)
        self._consumer = consumer
        self._slots = slots
        self._reports = reports
        self._owner = owner
        self._lock_ms = lock_ms
        self._slow = lock_ms / 1000 * CLAIM_SHARE
        self._poll_interval = poll_interval
        self.calls = CallSender(client, reports)
        self.outcomes = OutcomeQueue()
        self._pushes = PushInbox(lock_ms)
        self._accepts_pushes = accepts_pushes
        self._direct_claims = DirectClaims(are_possible=isinstance(client.storage, TransactionStore))
        self._loop = asyncio.get_running_loop()
        self._event = TaskEvent(self._loop)
        self._is_waiting = False
        """True while `run` waits for `_event`, so no call is in flight."""
        self._awake = False
        """True only if `_event` is set and `found_nothing` is not, so that most ends of runs do not touch them."""
        self._claimable = True
        self._max_claimed = MAX_CLAIMED
        """Maximum number of jobs for the next claim, adapted to the time that recent replies took."""
        self._polling = False
        self._stopping = self._finishing = False
        self._left = False
        self._run_times = RunTimes()
        self.paused = False
        """True while the worker claims nothing on request."""
        self._has_settled = False
        """True if runs have ended since the worker was drained."""
        self._registered = False
        """True if the store may expect this worker to react to a wake-up."""
        self._due = DueTimer(self.wake)
        self._poll: asyncio.TimerHandle | None = None
        self._echo = EchoCheck(self._on_missing_echo)
        self.subscribed = False
        """True while the subscription of the wake-up channel is confirmed."""
        self.has_safe_leases = True
        """False while renewals fail and leases may expire. No job is claimed in this time."""
        self.found_nothing = asyncio.Event()
        """Set after a call that left a slot free. Cleared when another claim may find jobs."""
        self._broken_at = 0.0
        """Loop time at which the server did not know the last call, 0 after the leases were renewed."""
        self.ended = False
        """True after the end of `run`."""

    # -- events ---------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Claim soon, because a job may be ready."""
        self._claimable = True
        self.found_nothing.clear()
        self._event.set()

    def receive(self, pushed: JobsPushed) -> None:
        """Start the jobs soon that another call has claimed for this worker."""
        if self._pushes.receive(pushed, self._channel.number):
            self.found_nothing.clear()
            self._event.set()

    def receive_plain(self, pushed: PlainPushed) -> None:
        """Start a job that an add has claimed for this worker. It starts in this method if the claim loop is waiting.

        Only outside of every task.
        """
        if (
            self._is_waiting
            and not (self._event.is_set() or self._stopping or failpoints.armed)
            and self.has_safe_leases
            and self._pushes.accept(pushed.number, pushed.claimed_at, self._loop.time())
        ):
            run = run_of_entry(self._client, pushed.raw, pushed.name, pushed.data, pushed.claimed_at)
            free = self._start_pushed(run)
            if free is not None:
                self._continue_after(run, free)
                return
            # The claim loop accepts the push again, unless it is too old by then.
            self._pushes.decline()
        self.receive(pushed.as_jobs())

    def _start_pushed(self, run: Run) -> int | None:
        self._awake = True  # the end of the run does not set `_event`, because `_continue_after` continues `run`
        free = None
        try:
            free = self._owner.start_pushed(run)
        finally:
            self._awake = free is not None
        return free

    def _continue_after(self, run: Run, free: int) -> None:
        """Continue `run` after the start of a pushed job. `free` is the number of free slots."""
        self.found_nothing.clear()
        # The push has removed this worker from the list of idle workers. If the worker has other free slots, `run` must
        # make a call. It does so after the first step of the handler, and settles the job if it has ended.
        self._registered = False
        if free:
            self._claimable = True
        if not (free or self.outcomes):
            self._awake = False
        elif run.begun:
            self._event.resume()
        else:
            self._event.set()

    def end(self, runs: list[Run]) -> None:
        """Queue the outcomes of runs that have ended."""
        self.outcomes.add(runs)
        if not self._awake:
            self._awake = True
            self.found_nothing.clear()
            self._event.set()

    def on_echo(self) -> None:
        """Note that the echo to the worker's own channel has arrived, so the subscription works."""
        self._echo.arrived()

    def on_link(self, up: bool) -> None:
        """Note that the subscription was confirmed or lost."""
        self.subscribed = up
        if up:
            # Messages published before the subscription was confirmed are lost, so check once for jobs.
            self.wake()

    def on_renewed(self, sent: float) -> None:
        """Note that a call sent at this loop time has renewed the leases and reported the lost ones."""
        if sent > self._broken_at:
            self._broken_at = 0.0

    def on_lease_safety(self, safe: bool) -> None:
        """Note whether leases are renewed in time."""
        self.has_safe_leases = safe
        if safe:
            self.wake()

    def pause(self, paused: bool) -> None:
        """Claim nothing until the pause ends. Runs continue, and their outcomes are settled."""
        self.paused = paused
        # Also for a pause: the call tells the server that this worker is not idle.
        self.wake()

    @property
    def stopping(self) -> bool:
        """True after `stop` or `finish`."""
        return self._stopping

    def stop(self) -> None:
        """Claim nothing more. Outcomes are still settled."""
        self._stopping = True
        self.calls.shorten_pauses()
        self._event.set()

    def finish(self) -> None:
        """Make `run` return when every outcome is stored. Call this after all runs have ended."""
        self._finishing = True
        self.stop()

    # -- the loop -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Call whenever there is a reason. Return after `finish`, when every outcome is stored."""
        try:
            while not (self._finishing and self._left and not self.outcomes):
                self._is_waiting = True
                await self._event.wait()
                self._is_waiting = False
                self._event.clear()
                self._awake = False
                if self._pushes:
                    may_continue = self._take_push()
                    # The runs take their first step before the next call is made. It delays no handler then, and
                    # settles the runs that have ended. The first step of a warm run only wakes its function.
                    await asyncio.sleep(0)
                    if may_continue:
                        await asyncio.sleep(0)
                slots = 0 if self._stopping or self.paused or not self.has_safe_leases else self._slots.free()
                if self.outcomes or self._must_leave() or (self._claimable and slots > 0):
                    await self._call_safely(slots)
        finally:
            self._is_waiting = False
            self.ended = True
            self._due.cancel()
            self._echo.cancel()
            if self._poll is not None:
                self._poll.cancel()

    def _must_leave(self) -> bool:
        # A stopping worker makes one more call even without an outcome, so that the store does not wake it any more.
        return (self._stopping and not self._left) or (self.paused and self._registered)

    async def _call_safely(self, slots: int) -> None:
        """Make the call. Any exception is reported; the loop continues and keeps the outcomes."""
        # Read before the call: a stop that comes while the call is in flight needs another call, because this one may
        # have listed the worker as idle.
        leaving = self._stopping
        try:
            await self._call(slots)
        except Exception as error:  # noqa: BLE001 - a worker whose loop ends would run no more jobs
            # The store may still list this worker as idle since an earlier call.
            self._registered = True
            self._reports.error(error)
            if isinstance(error, FunctionError) and error.code == "ARGUMENT" and self.outcomes.has_call:
                self._separate_outcomes()
            else:
                # The server refuses a call before it changes anything, so the outcomes may join another call.
                # A call without a reply never comes here: `CallSender` repeats it.
                self.outcomes.put_back()
                await asyncio.sleep(ERROR_PAUSE)
            self.wake()
        self._left = leaving

    def _separate_outcomes(self) -> None:
        culprit = self.outcomes.separate()
        if culprit is not None:
            self._reports.settled([culprit], {0: "malformed"})

    async def _call(self, slots: int) -> None:
        # Much can happen between the lines of this function, because the runs, the subscription and the lease thread
        # continue while the call is in flight:
        #
        # - A run ends. Its outcome waits in `outcomes` for the next call. It must not join this one, because the
        #   arguments of a numbered call never change.
        # - A wake-up arrives. It may be older or newer than the moment at which the server executed this call. Treating
        #   it as newer costs one empty claim; treating it as older could leave a job unnoticed until the next poll. So
        #   `_claimable` is cleared before the call is sent, and never after it: a wake-up sets it again, and the loop
        #   claims once more.
        # - The echo arrives on its own connection, possibly before the reply. So it is expected before the call is
        #   sent; otherwise an early echo would be overlooked, and a good subscription would be reset.
        # - The worker stops. The reply may then contain jobs that must not start; `_take_jobs` releases them.
        # - Slots become free, but none is taken, because only this loop starts runs.
        batch = self.outcomes.take_batch()
        asked = min(slots, self._max_claimed)
        request = self._request(batch, asked)
        if self._polling:
            self._echo.expect()
        self._claimable = self._polling = False
        if failpoints.armed:
            _pass_before_send(batch)
        reply = await self.calls.send(request)
        self._direct_claims.note_reply(reply.jobs, was_refused=reply.is_refused)
        if failpoints.armed:
            _pass_after_reply(batch, reply)
        settled = self._confirm(batch, reply.settled)
        self._registered = self.subscribed and len(reply.jobs) < slots
        self._after_call(reply, settled, slots, asked)

    def _request(self, batch: Sequence[Run], slots: int) -> SettleRequest:
        request = self.calls.settle.request(
            self._channel,
            self._consumer,
            slots,
            self._lock_ms,
            subscribed=self.subscribed,
            idle=self._registered,
            echo=self._polling,
            verify=self._broken_at > 0,
            accepts_pushes=self._accepts_pushes and self.subscribed,
            has_push=self._pushes.has_last,
            is_direct=slots > 0 and not self._polling and self._direct_claims.begin(),
            ran_ms=self._run_times.report(batch, are_completed=self.outcomes.uniform is not None),
        )
        uniform = self.outcomes.uniform
        if uniform is not None:
            request.settle_all([run.raw for run in batch], *uniform)
            return request
        for run in batch:
            job = run.job
            since = run.plain_since
            claimed_at = started_ms(job) if since is None else None
            request.settle(job.id, run.entry, job.key, run.outcome, plain_since=since, claimed_at=claimed_at)
        return request

    def _confirm(self, batch: list[Run], settled: int) -> Sequence[Run]:
        """Drop the settled runs of the call, which are the first ones, and keep the others. Return the settled ones."""
        # A call ends after some milliseconds of the server. It has not looked at the runs that were left then: they
        # hold their leases, their number was used for nothing, and they join the next call as if they had just ended.
        unsettled = batch[settled:]
        self.outcomes.confirm(settled)
        if unsettled:
            batch = batch[:settled]
        self._run_times.counted(batch, unsettled)
        return batch

    def known_calls(self, longest: float) -> tuple[int, int]:
        """Return the numbers of the last answered call and of the call in transit, 0 for none, from any thread.

        A call that has been in transit for `longest` seconds is not returned. Otherwise, a connection that always
        breaks before the end of a reply could hold its jobs for ever.
        """
        calls = self.calls
        # Read in this order. A call that starts between two lines is not in transit yet.
        in_transit, since = calls.in_transit, calls.waiting_since
        answered = 0 if self._broken_at else calls.answered
        return answered, in_transit if time.monotonic() - since < longest else 0

    # -- after a reply --------------------------------------------------------------------------------------------

    def _after_call(self, reply: SettleReply, settled: Sequence[Run], slots: int, asked: int) -> None:
        # The server did not know this worker's previous call: a failover has lost it, and perhaps the claims before it.
        # Another worker may have claimed the same entries with the same fencing tokens. From now on every call asks the
        # server to compare the consumer of each entry, which costs one read per job, until a renewal that was sent
        # later has named the entries that are lost.
        if reply.is_broken:
            self._broken_at = self.calls.last_reply
            self._owner.renew_leases()
        if reply.posted:
            self._owner.relay_outbox()
        self._pushes.answered(self._channel.number, reply.now, self.calls.last_reply)
        self._adapt(self.calls.last_reply - self.calls.sent_at, len(reply.jobs))
        uniform = self.outcomes.uniform
        self._reports.settled(settled, reply.refused, None if uniform is None else uniform[0])
        self._take_jobs(reply.jobs, reply.claimed_at, slots)
        self._set_timers(reply)
        if slots > asked == len(reply.jobs):
            # The call was limited to fewer jobs than there are slots.
            self.wake()
        # `found_nothing` means that the worker is idle. Outcomes that are not stored yet contradict that: the end of a
        # run can make the next job of its key ready, and a retry is a job itself.
        self._has_settled = self._has_settled or bool(settled)
        if len(reply.jobs) < slots and not (self._claimable or self.outcomes or self._pushes):
            self.found_nothing.set()
            self._awake = False
            if self._has_settled and not reply.jobs and not len(self._slots):
                self._has_settled = False
                self._owner.on_drained()
        else:
            self.found_nothing.clear()
        # The last step, because handlers may run in it up to their first `await` that waits. A handler that blocks the
        # loop must not delay the timers, which count from the reply.
        self._owner.start_runs()

    def _adapt(self, seconds: float, claimed: int) -> None:
        """Claim fewer jobs per call while replies are slow, and more when they are fast again.

        The leases of claimed jobs run while the reply is in transit. On a slow connection a reply with many payloads
        could arrive after they have expired, and the same would happen with every later claim.
        """
        if not claimed:
            return
        if seconds > self._slow:
            self._max_claimed = max(1, claimed // 2)
        elif self._max_claimed < MAX_CLAIMED:
            self._max_claimed = min(self._max_claimed * 2, MAX_CLAIMED)

    def _take_push(self) -> bool:
        """Start the pushed jobs. Return whether one of them may be a warm run."""
        pushed = self._pushes.take(asyncio.get_running_loop().time(), is_safe=self.has_safe_leases)
        if pushed is None:
            self.wake()  # the reply contains the jobs that may still start here
            return False
        if failpoints.armed:
            failpoints.hit("push.before_start")
        # The push has removed this worker from the list of idle workers. If it has other free slots, it must call.
        self._registered = False
        self._take_jobs(pushed.jobs, pushed.claimed_at, self._slots.free())
        if self._slots.free():
            self.wake()
        self._owner.start_runs()
        return any(job.history is not None and job.history.hand_over is not None for job in pushed.jobs)

    def _take_jobs(self, jobs: Sequence[ClaimedJob], claimed_at: int, slots: int) -> None:
        claimed = runs_of_claim(self._client, jobs, claimed_at)
        runs = claimed.runs
        if self._stopping or len(runs) > slots:
            # The stop came while this claim was in flight, or a pushed job finds that its slot is not free any more
            # (a run in a thread was abandoned). The job is released, as each run without an outcome.
            first = 0 if self._stopping else slots
            self.outcomes.add(runs[first:])
            del runs[first:]
        for run, error in self._owner.take_slots(claimed):
            fail_unreadable(run, error)
            self.outcomes.add([run])
        if self.outcomes:
            self._event.set()

    def _set_timers(self, reply: SettleReply) -> None:
        self._due.cancel()
        if reply.due > reply.now:
            self._due.set(reply.wait)
        elif reply.due:
            self.wake()  # the call reached its limit, so more jobs may be ready
        if reply.listeners >= 0 and self.subscribed:
            self._echo.sent(reply.listeners)
        # Restarting a timer for every call is too expensive. One timer runs, and checks the time of the last call.
        if self._poll is None and not self._stopping:
            self._poll = asyncio.get_running_loop().call_later(self._poll_interval, self._on_poll)

    def _on_poll(self) -> None:
        self._poll = None
        loop = asyncio.get_running_loop()
        rest = self.calls.last_reply + self._poll_interval - loop.time()
        if rest > 0:
            self._poll = loop.call_later(rest, self._on_poll)
            return
        self._polling = True
        self.wake()

    def _on_missing_echo(self) -> None:
        _log.warning("queue %s: the wake-up subscription does not respond; connecting again", self._client.queue)
        self._owner.reset_subscription()


def _pass_before_send(batch: Sequence[Run]) -> None:
    if not batch:
        failpoints.hit("claim.before_send")
    if any(isinstance(run.outcome, Completed) for run in batch):
        failpoints.hit("complete.before_send")
    if any(isinstance(run.outcome, Retry | Failed) for run in batch):
        failpoints.hit("fail.before_send")


def _pass_after_reply(batch: Sequence[Run], reply: SettleReply) -> None:
    failpoints.hit("complete.after_reply" if batch else "claim.after_reply")
    if batch and reply.jobs:
        failpoints.hit("claim.after_reply")
