"""The session of a worker between its sign-on and its sign-off: claim loop, runs, and background tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import anyio

from glidemq_async._internal import failpoints
from glidemq_async._internal.task_scope import HAS_EAGER_TASKS, TaskScope
from glidemq_async._internal.wait_point import raise_soon
from glidemq_async.client.outbox import Outbox
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import GlideMQError, LeaseLost, SerializationError
from glidemq_async.functions import push, wakeup
from glidemq_async.functions.lease import Held
from glidemq_async.functions.push import JobsPushed
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import run_options
from glidemq_async.storage import Subscription
from glidemq_async.topics.feeding import FeedSource
from glidemq_async.worker.claim_loop import ClaimLoop
from glidemq_async.worker.claimed_runs import ClaimedRuns
from glidemq_async.worker.drain import Drain
from glidemq_async.worker.feeder import Feeder
from glidemq_async.worker.leases import LeaseRenewer
from glidemq_async.worker.listeners import Listeners
from glidemq_async.worker.loop_watch import LoopWatch, watch_of_this_loop
from glidemq_async.worker.options import WorkerOptions
from glidemq_async.worker.outbox_relay import OutboxRelay
from glidemq_async.worker.reports import Reports
from glidemq_async.worker.runs import Run, RunFunction, Runner, StopReason, end_unfinished
from glidemq_async.worker.shared_tasks import SharedTasks
from glidemq_async.worker.slots import Slots
from glidemq_async.worker.stopping_runs import StoppingRuns
from glidemq_async.worker.sweeper import Sweeper

RELEASE_SECONDS: Final = 5.0
"""Time limit for storing the last outcomes and signing off when the server is slow or unreachable."""
LEASES_IN_TRANSIT: Final = 20
"""Number of leases for which the jobs of a claim are renewed while its reply is in transit."""

_log = logging.getLogger(__name__)


class Service(Protocol):
    """A part of a session that runs in a separate task until it is cancelled or finished."""

    async def run(self) -> None:
        """Do the work of the service."""
        ...


class Session:
    """Claims jobs for the slots of one worker, runs them with `run`, and renews their leases; see Worker.

    Created when the client is open. The session owns its parts: it creates them, passes itself to the parts that
    call it (as LoopOwner and as LeaseOwner), and ends them. `run` returns False for a run whose lease was lost.
    `may_share` returns True for a job that may run in a task with others; see SharedTasks. `is_batching`: the slots
    belong to batches.
    """

    is_bursting = False
    """True while `until_empty` waits, which reports "drained" itself."""
    _had_link = False

    def __init__(
        self,
        client: QueueClient,
        worker: str,
        info: bytes,
        options: WorkerOptions,
        *,
        slots: Slots,
        reports: Reports,
        listeners: Listeners,
        run: RunFunction,
        runner: Runner | None,
        may_share: Callable[[Job[Any, Any]], bool] | None,
        is_batching: bool,
        tasks: TaskScope,
        on_defect: Callable[[Exception], None],
        on_command: Callable[[str], None],
        source: FeedSource | None = None,
    ) -> None:
        self._client = client
        client.functions.caller.consumer = worker
        self._worker = worker
        self._lease = options.lock_duration
        self._slots = slots
        self._reports = reports
        self._listeners = listeners
        self._run = run
        self._may_share = may_share
        self._shared_tasks = None if may_share is None else SharedTasks(tasks, self._run_job, self._end_runs, runner)
        self._tasks = tasks
        self._on_defect = on_defect
        self._on_command = on_command
        self._stopping = StoppingRuns(client.functions, worker, slots.when_ended)
        lock_ms = round(options.lock_duration * 1000)
        self.loop = ClaimLoop(
            client,
            worker,
            slots,
            reports,
            self,
            lock_ms=lock_ms,
            poll_interval=options.poll_interval,
            # A batch keeps slots for members that are missing, and their number changes between two calls.
            accepts_pushes=not is_batching,
        )
        self.renewer = LeaseRenewer(client.storage, client.keys.base, worker, info, self)
        self._relay = OutboxRelay(Outbox(client, worker), reports)
        self._sweeper = Sweeper(
            client, reports, self._relay, lease=options.lock_duration, max_stalled=options.max_stalled
        )
        self._feeder = None if source is None else Feeder(client, source, worker, reports)
        self._subscription: Subscription | None = None
        self._watch: LoopWatch | None = None
        self._missed_stops: dict[str, StopReason] = {}
        """The entries of runs that have no slot here, and that messages have asked to stop."""
        self._taken: list[ClaimedRuns] = []
        """Runs that have taken a slot and have not started."""
        self._services: list[asyncio.Task[None]] = []
        """The task of the claim loop, then the tasks of the other services."""

    async def start(self) -> None:
        """Subscribe, then start the claim loop. Raises StorageUnavailable; only the subscription calls the server.

        The order matters. The subscription is confirmed before the first claim, because a job that becomes ready
        between an empty claim and a later subscription would stay unnoticed until the next poll. The renewer runs
        before the first claim too, so that no job is claimed whose lease cannot be renewed.
        """
        channel = self._client.keys.channel(f"wake:{self._worker}")
        self._subscription = await self._client.storage.subscribe(
            self._client.keys.base, channel, self._on_message, self._on_link
        )
        self.renewer.start()
        self._watch = watch_of_this_loop()
        self._watch.enter(self._slots.runs)
        parts: list[Service] = [self.loop, self._sweeper, self._relay, self._stopping]
        if self._feeder is not None:
            parts.append(self._feeder)
        self._services = [self._tasks.start(self._serve(part)) for part in parts]
        self.loop.wake()

    async def _serve(self, service: Service) -> None:
        """Run a service. After an unexpected exception the worker closes and releases its jobs."""
        try:
            await service.run()
        except Exception as error:  # noqa: BLE001 - a defect of this library
            self._on_defect(error)

    # -- messages from the store ----------------------------------------------------------------------------------

    def _on_message(self, message: bytes) -> None:
        """Handle a message on the worker's own channel."""
        if message.startswith(push.ONE_PLAIN):  # the first one, because a handler waits for it
            self._on_push(message)
            return
        match wakeup.read_message(message):
            case JobsPushed() as pushed:
                self.loop.receive(pushed)
            case wakeup.ClaimNow():
                self.loop.wake()
            case wakeup.Echo():
                self.loop.on_echo()
            case wakeup.LeaseGone(entry):
                self._stop_entry(entry, "lease lost")
            case wakeup.RunRevoked(entry):
                self._stop_entry(entry, "revoked")
            case wakeup.FireTimeSet():
                self._client.scheduler_runner.expect(0.0)
            case wakeup.Command(text):
                self._on_command(text)
            case None:
                pass

    def _on_push(self, message: bytes) -> None:
        try:
            self.loop.receive_plain(push.read_plain(message))
        except Exception as error:  # noqa: BLE001 - a defect of this library
            self._on_defect(error)
        except (KeyboardInterrupt, SystemExit) as error:  # of a handler
            raise_soon(error)

    def _stop_entry(self, entry: str, reason: StopReason) -> None:
        if not self._slots.stop_entries([entry], reason):
            # The run may be in the reply to a claim that is still on its way. Then its handler must not start.
            self._missed_stops[entry] = reason

    def _on_link(self, up: bool) -> None:
        """Handle a confirmed or lost subscription."""
        # "up" comes after the server has confirmed the subscription. Wake-ups and revocations that were published while
        # the link was down are lost, so both are looked for now: by a claim, and by a renewal.
        if up and failpoints.armed:
            failpoints.hit("subscribe.after_confirm")
        self.loop.on_link(up)
        if up:
            if self._had_link:
                self._listeners.notify("reconnected")
            self._had_link = True
        else:
            self._listeners.notify("disconnected")
        if up:
            self.renew_leases()

    # -- the owner of the claim loop ------------------------------------------------------------------------------

    def take_slots(self, claimed: ClaimedRuns) -> list[tuple[Run, SerializationError]]:
        """Take slots for claimed jobs. Return those whose options cannot be decoded, and why."""
        runs = claimed.runs
        unreadable = self._read_options(runs) if claimed.have_options else []
        taken = self._slots.take(runs, are_distinct=claimed.are_distinct)
        if len(taken) < len(runs):
            # The consumer group was recreated, and the store returned jobs that already run here. The slots for them
            # are still free.
            self.loop.wake()
        self._taken.append(claimed if taken is runs else claimed._replace(runs=taken))
        return unreadable

    def _read_options(self, runs: list[Run]) -> list[tuple[Run, SerializationError]]:
        unreadable: list[tuple[Run, SerializationError]] = []
        for run in [run for run in runs if run.has_options]:
            try:
                run.options = run_options(run.job)
            except SerializationError as error:
                unreadable.append((run, error))
                runs.remove(run)
                continue
            if run.options.lock_duration is not None:
                self.renewer.shorten(run.options.lock_duration)
        return unreadable

    def start_runs(self) -> None:
        """Start the runs that have taken a slot. A handler may run in this call up to its first real wait."""
        # All jobs of a claim have their slot, and their lease in `leases`, before the first handler runs. A handler
        # that blocks the loop would otherwise delay the first renewal of the jobs behind it.
        taken, self._taken = self._taken, []
        for claimed in taken:
            runs = claimed.runs
            if self._missed_stops:
                self._end_missed(runs)
            if self._listeners.wants("active"):
                for run in runs:
                    self._listeners.notify("active", run.job)
        for claimed in taken:
            self._start(claimed)

    def start_pushed(self, run: Run) -> int | None:
        """Take a slot for the run of a pushed plain job, and start it. Return the number of free slots.

        The handler runs in this call up to its first real wait. Call this outside of every task. Returns None, and does
        nothing, if the start needs more steps.
        """
        shared_tasks, may_share = self._shared_tasks, self._may_share
        if (
            shared_tasks is None
            or may_share is None
            or self._taken
            or self._missed_stops
            or self._listeners.wants("active")
        ):
            return None
        try:
            is_shared = may_share(run.job)
        except Exception:  # noqa: BLE001 - of an executor that is not ours; `_start` reports it
            return None
        if not is_shared or (free := self._slots.take_one(run)) is None:
            return None
        shared_tasks.start_now(run)
        return free

    def _start(self, claimed: ClaimedRuns) -> None:
        runs, shared_tasks, may_share = claimed.runs, self._shared_tasks, self._may_share
        if shared_tasks is None or may_share is None:
            for run in runs:
                self._tasks.start_eagerly(self._run_job(run))
            return
        # An executor that is not ours may raise an exception. Without `except`, the other runs would keep their slots
        # and never start. A run that the executor cannot judge gets a separate task, as without `may_share`.
        try:
            are_shared = claimed.are_alike and runs and may_share(runs[0].job)
        except Exception:  # noqa: BLE001 - reported below
            are_shared = False
        if are_shared:
            shared_tasks.start(runs)
            return
        shared: list[Run] = []
        for run in runs:
            try:
                is_shared = (run.options is None or run.options.timeout is None) and may_share(run.job)
            except Exception as error:  # noqa: BLE001 - see above
                self._reports.error(error)
                is_shared = False
            if is_shared:
                shared.append(run)
                continue
            if shared and HAS_EAGER_TASKS:  # the jobs begin in the order of the claim
                shared_tasks.start(shared)
                shared = []
            self._tasks.start_eagerly(self._run_job(run))
        shared_tasks.start(shared)

    def _end_missed(self, runs: list[Run]) -> None:
        # A message that names no run of this claim may be about a later claim. It is forgotten, because the same entry
        # may name another run after a failover. Instead, a renewal asks the server for all runs that must stop.
        missed, self._missed_stops = self._missed_stops, {}
        for run in runs:
            if (reason := missed.get(run.entry)) is not None:
                run.stop(reason)
        self.renew_leases()

    def renew_leases(self) -> None:
        """Renew the leases now, to learn immediately which jobs were lost or revoked."""
        self.renewer.renew_now()

    def relay_outbox(self) -> None:
        """Relay the outbox soon."""
        self._relay.wake()

    def reset_subscription(self) -> None:
        """Connect the subscription of the wake-up channel again."""
        if self._subscription is not None:
            self._subscription.reset()

    def _end_runs(self, runs: list[Run]) -> None:
        """Queue the outcomes of runs that have ended, and free their slots."""
        # In this order, see `_run_job`.
        self.loop.end(runs)
        self._slots.release(runs)

    def on_drained(self) -> None:
        """Report that the worker has run all jobs that it could start."""
        if not self.is_bursting:
            self._listeners.notify("drained")

    async def _run_job(self, run: Run, rest: Coroutine[Any, Any, bool] | None = None) -> None:
        if run.task is None:  # a separate task
            run.task = asyncio.current_task()
        try:
            try:
                stored = await (self._run(run) if rest is None else rest)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - see `_end_unfinished`
                self._end_unfinished(run, error)
                stored = True
            # Two things can race here. The handler has returned a result, and the renewer may have learned in the same
            # moment that the lease is lost. After a failover another worker can hold the same entry with the same
            # fencing token, so the server could accept our outcome for that worker's run. Therefore the report of the
            # renewer wins: after "lease lost" the outcome is dropped, even if the handler has completed. The `await`
            # above is the last point at which the reason can change before `end`, because both run in the same loop.
            if stored and run.stop_reason != "lease lost":
                # Before the slot is free: the lease thread must find the run in the slots or in the outcomes at any
                # time, because it renews the leases of both.
                self.loop.end([run])
                return
            self._stopping.add(run.job)
        finally:
            # The task and its context end now, not when the outcome is stored.
            run.task = None
            self._slots.release([run])
        self.loop.wake()
        self._listeners.notify("lease_lost", run.job)

    def _end_unfinished(self, run: Run, error: Exception | asyncio.CancelledError) -> None:
        # `run` sets an outcome for everything that a handler can raise. An exception of `run` itself is a defect of
        # this library, or a stop that came after the handler had ended, while the last progress was written. Without an
        # outcome the job would stay active although no handler runs, until its lease ends.
        if isinstance(error, asyncio.CancelledError) and not run.stopped():
            raise error  # the event loop is closing
        if isinstance(error, Exception):
            self._reports.error(error)
        end_unfinished(run, error)

    # -- the owner of the renewer ---------------------------------------------------------------------------------

    def leases(self) -> list[Held]:
        """Return every lease to renew, from any thread.

        A run that has ended still holds its lease until its outcome is stored. If renewals stopped at the end of the
        handler, a slow settle call could lose the lease: another worker would run the job again, and the server would
        refuse the finished result.
        """
        # The slots are read first: a run that ends between these lines is then in one of the lists, or in two.
        runs = self._slots.runs()
        runs += self.loop.outcomes.unconfirmed
        held = [Held(run.job.id, run.entry, run.plain_since or "") for run in runs]
        return held + self._stopping.leases()

    def known_calls(self) -> tuple[int, int]:
        """Return the numbers of the last answered call and of the call in transit, from any thread."""
        return self.loop.known_calls(LEASES_IN_TRANSIT * self._lease)

    def shortest_lease(self) -> float:
        """Return the shortest lease of the current runs in seconds, from any thread."""
        return self._slots.shortest_lease(self._stopping.shortest_lease(self._lease))

    def on_lost(self, entries: list[str]) -> None:
        """Stop the runs whose leases this worker has lost."""
        self._slots.stop_entries(entries, "lease lost")

    def on_revoked(self, entries: list[str]) -> None:
        """Stop the runs whose jobs were revoked."""
        self._slots.stop_entries(entries, "revoked")

    def on_lease_safety(self, safe: bool) -> None:
        """Note whether leases are renewed in time. No job is claimed while they are not."""
        self.loop.on_lease_safety(safe)
        if not safe:
            text = "leases could not be renewed in time; the worker claims no jobs until a renewal succeeds"
            self._reports.error(LeaseLost(text))

    def on_renewed(self, sent: float) -> None:
        """Note a renewal, whose losses were reported before."""
        self.loop.on_renewed(sent)

    # -- the end --------------------------------------------------------------------------------------------------

    async def feed(self) -> bool:
        """Move the messages of the topic into the queue of a subscription. Return whether there were any."""
        return self._feeder is not None and await self._feeder.feed_all()

    async def until_empty(self, stopped: asyncio.Event, *, wait: bool) -> None:
        """Wait until nothing can be claimed, or `stopped` is set; see `Worker.until_empty`."""
        drain = Drain(self._client.functions, self.loop, self._slots, self._reports)
        await (drain.wait(stopped) if wait else drain.wait_for_claims(stopped))

    async def release(self) -> None:
        """Store the last outcomes, release the unfinished jobs, and sign off, within a time limit.

        All runs have ended.
        """
        # The order matters:
        #
        # 1. The sweeper and the relay are cancelled, because they would start new work. A relay that is cancelled in a
        #    delivery keeps its entry in the outbox.
        # 2. The claim loop stores the last outcomes. Its leases are still renewed, so a slow server refuses none.
        # 3. `finish` delivers the entries that the last outcomes have added to the outbox.
        # 4. The renewer stops, because a later renewal would register this worker again.
        # 5. The sign-off returns the jobs that are still pending under the worker's name, and removes the name. It must
        #    not come before the outcomes: a job whose outcome is on its way would run a second time.
        #
        # The claim loop is shielded. If the time is over, its call may be executed at any moment, and the loop is
        # cancelled only after that, so that a reply which arrives within the limit is not lost. An unreachable server
        # costs RELEASE_SECONDS. After that the leases expire, and a sweep of another worker returns the jobs.
        self.loop.finish()
        claiming, *others = self._services
        for task in others:
            task.cancel()
        try:
            with anyio.fail_after(RELEASE_SECONDS):
                await asyncio.wait([claiming])
                if claiming.cancelled():  # with all tasks of the event loop, so its last call may still be executed
                    raise GlideMQError("the claim loop was cancelled")
                await asyncio.gather(*others, return_exceptions=True)
                # If this fails, the next worker of the queue relays the entries.
                await self._relay.finish()
                await self._stopping.report()
                if self._feeder is not None:
                    await self._feeder.finish()
                await self.renewer.stop()
                await self._client.functions.stalled.close_worker(self._worker)
        except (TimeoutError, GlideMQError) as error:
            _log.warning(
                "worker %s: could not sign off; others reclaim its jobs when the leases expire: %r", self._worker, error
            )
        if self._shared_tasks is not None:
            self._shared_tasks.close()
        # From here on nothing needs the server. These steps also run after a failure above, because tasks, threads and
        # connections must not outlive the worker.
        claiming.cancel()
        await asyncio.gather(*self._services, return_exceptions=True)
        await self.renewer.stop()
        if self._watch is not None:
            await self._watch.leave(self._slots.runs)
        if self._subscription is not None:
            await self._subscription.close()
