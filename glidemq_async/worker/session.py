"""The session of a worker between its sign-on and its sign-off: claim loop, runs, and background tasks."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Final

from glidemq_async._internal.waits import first_of
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import GlideMQError
from glidemq_async.functions.callers import RequestChannel
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import entry_of, has_options, run_options
from glidemq_async.queues.outbox import Outbox
from glidemq_async.storage import Subscription
from glidemq_async.stored.record import WAITING
from glidemq_async.worker.claim_loop import ClaimLoop
from glidemq_async.worker.feedback import Feedback
from glidemq_async.worker.leases import LeaseRenewer
from glidemq_async.worker.listeners import Listeners
from glidemq_async.worker.loop_watch import LoopWatch, watch_of_this_loop
from glidemq_async.worker.options import WorkerOptions
from glidemq_async.worker.other_runs import OtherRuns
from glidemq_async.worker.outbox_relay import Relaying
from glidemq_async.worker.runs import Run, RunFunction
from glidemq_async.worker.slots import Held, Slots
from glidemq_async.worker.sweeper import Sweeper

HELD_BACK_SECONDS: Final = 0.5
"""Pause before a worker with `until_empty` checks again for jobs that were held back."""
RELEASE_SECONDS: Final = 5.0
"""Time limit for storing the last outcomes and signing off when the server is slow or unreachable."""

_log = logging.getLogger(__name__)


class Session:
    """Claims jobs for the slots of one worker, runs them with `run`, and renews their leases; see Worker.

    Created when the client is open. `run` returns None for a run whose lease was lost.
    """

    def __init__(
        self,
        client: QueueClient,
        worker: str,
        info: bytes,
        options: WorkerOptions,
        *,
        slots: Slots,
        feedback: Feedback,
        listeners: Listeners,
        run: RunFunction,
    ) -> None:
        self._client = client
        client.functions.consumer = worker
        self._worker = worker
        self._slots = slots
        self._feedback = feedback
        self._listeners = listeners
        self._run = run
        self.loop = ClaimLoop(
            client,
            RequestChannel(worker),
            worker,
            lock_ms=round(options.lock_duration * 1000),
            poll_interval=options.poll_interval,
            free_slots=slots.free,
            start=self._start_run,
            settled=feedback.on_settled,
            on_error=feedback.on_error,
        )
        self.renewer = LeaseRenewer(
            client.storage,
            client.keys.base,
            worker,
            info,
            lambda: slots.shortest_lease(options.lock_duration),
            self._held,
            feedback.on_lost,
            feedback.on_revoked,
            feedback.on_health,
            self._on_renewed,
        )
        self.loop.on_broken = self.renewer.renew_now
        self._relaying = Relaying(Outbox(client, worker), feedback.on_error)
        self._sweeper = Sweeper(
            client.functions,
            lease=options.lock_duration,
            max_stalled=options.max_stalled,
            on_stalled=feedback.on_stalled,
            on_posted=self._relaying.wake,
            on_error=feedback.on_error,
            on_next_slot=client.timekeeper.hint,
        )
        feedback.on_schedule = partial(client.timekeeper.expect, 0.0)
        self.loop.on_posted = self._relaying.wake
        self._subscription: Subscription | None = None
        self._watch: LoopWatch | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Subscribe, then start the claim loop. Raises StorageUnavailable; only the subscription calls the server.

        The order matters. The subscription is confirmed before the first claim, because a job that becomes ready
        between an empty claim and a later subscription would stay unnoticed until the next poll. The renewer runs
        before the first claim too, so that no job is claimed whose lease cannot be renewed.
        """
        self._feedback.loop = self.loop
        self._subscription = await self._client.storage.subscribe(
            self._client.keys.base,
            self._client.keys.channel(f"wake:{self._worker}"),
            self._feedback.on_message,
            self._feedback.on_link,
        )
        self.loop.reset_subscription = self._subscription.reset
        self.renewer.start()
        self._feedback.renew = self.renewer.renew_now
        self._watch = watch_of_this_loop()
        self._watch.enter(self._slots.runs)
        self._tasks = [asyncio.create_task(part.run()) for part in (self.loop, self._sweeper, self._relaying)]
        self.loop.wake()

    @property
    def claiming(self) -> asyncio.Task[None]:
        """The task of the claim loop. Only for a started session."""
        return self._tasks[0]

    # -- runs -----------------------------------------------------------------------------------------------------

    def _held(self) -> list[Held]:
        """Return every lease to renew, from any thread.

        A run that has ended still holds its lease until its outcome is stored. If renewals stopped at the end of the
        handler, a slow settle call could lose the lease: another worker would run the job again, and the server would
        refuse the finished result.
        """
        held = [(run.job.id, entry_of(run.job)) for run in self._slots.runs()]
        return held + [(ended.run.job.id, entry_of(ended.run.job)) for ended in self.loop.settling]

    def _on_renewed(self, sent: float) -> None:
        self.loop.renewed(sent)

    def _start_run(self, job: Job[Any, Any]) -> None:
        """Start a run. Raises SerializationError, and takes no slot, when the job's options cannot be read."""
        lease = run_options(job).lock_duration if has_options(job) else None
        if self._slots.holds(entry_of(job)):
            # The consumer group was recreated, and the store returned a job that already runs here. The slot for it is
            # still free.
            self.loop.wake()
            return
        run = Run(job)
        self._slots.take(run)
        if lease is not None:
            self.renewer.shorten(lease)
        run.task = asyncio.create_task(self._run_job(run))
        if self._listeners.wants("active"):
            self._listeners.notify("active", job)

    async def _run_job(self, run: Run) -> None:
        try:
            ended = await self._run(run)
        finally:
            self._slots.release(run)
        # Two things can race here. The handler has returned a result, and the renewer may have learned in the same
        # moment that the lease is lost. After a failover another worker can hold the same entry with the same fencing
        # token, so the server could accept our outcome for that worker's run. Therefore the report of the renewer wins:
        # after "lease lost" the outcome is dropped, even if the handler has completed. The `await` above is the last
        # point at which the reason can change before `end`, because both run in the same loop.
        if ended is not None and run.stop_reason != "lease lost":
            self.loop.end(ended)
        else:
            self.loop.wake()
            self._listeners.notify("lease_lost", run.job)

    # -- the end --------------------------------------------------------------------------------------------------

    async def until_empty(self, stopped: asyncio.Event, *, wait: bool) -> None:
        """Wait until nothing can be claimed, or `stopped` is set; see `Worker.until_empty`."""
        loop = asyncio.get_running_loop()
        others = OtherRuns(self._client.functions)
        while not stopped.is_set():
            await first_of(self.loop.found_nothing, stopped)
            await first_of(self._slots.all_free, stopped)
            if len(self._slots) or not self.loop.found_nothing.is_set():
                continue
            if not wait:
                break
            # Only an empty claim that was sent after the last retry was due proves that no retry is left.
            asked_at = self.loop.asked_at
            if await self._client.functions.is_paused():
                break
            if not self.loop.found_nothing.is_set():  # a job arrived during the call
                continue
            if asked_at < self._feedback.retries_due:
                self.loop.found_nothing.clear()
                loop.call_at(self._feedback.retries_due, self.loop.wake)
                continue
            counts = await self._client.functions.count_jobs()
            if not any(counts[state] for state in WAITING) and not await others.may_come_back():
                break
            # A limit, a paused key or a run of another worker holds them back. The store wakes this worker when it can
            # take one. It also checks itself, because other workers may take all of them without any wake-up.
            self.loop.found_nothing.clear()
            loop.call_later(HELD_BACK_SECONDS, self.loop.wake)

    async def release(self) -> None:
        """Store the last outcomes, release the unfinished jobs, and sign off, within a time limit.

        All runs have ended.
        """
        self.loop.finish()
        claiming, *others = self._tasks
        for task in others:
            task.cancel()
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await asyncio.shield(claiming)
                await asyncio.gather(*others, return_exceptions=True)
                # Relay the entries of the last outcomes. If this fails, the next worker of the queue relays them.
                await self._relaying.finish()
                # The renewer must stop before the sign-off, because a later renewal would register this worker again.
                await self.renewer.stop()
                await self._client.functions.close_worker(self._worker)
        except (TimeoutError, GlideMQError) as error:
            _log.warning(
                "worker %s: could not sign off; others reclaim its jobs when the leases expire: %r", self._worker, error
            )
        claiming.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.renewer.stop()
        if self._watch is not None:
            await self._watch.leave(self._slots.runs)
        if self._subscription is not None:
            await self._subscription.close()
