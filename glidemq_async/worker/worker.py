"""The worker: claims jobs of one queue and runs them. What it is made of lives in the modules beside this one."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import time
import uuid
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Generic, Literal, Self, cast

import msgpack

from glidemq_async import failpoints
from glidemq_async.client import DEFAULT_PREFIX, QueueClient
from glidemq_async.dead_letters import check_dead_letter_queue
from glidemq_async.durations import to_ms
from glidemq_async.errors import GlideMQError, QueueClosed
from glidemq_async.executors.protocol import Executor, Handler
from glidemq_async.executors.registry import open_executor
from glidemq_async.functions.callers import Lane
from glidemq_async.generics import Data, Result
from glidemq_async.job import Job
from glidemq_async.keys import check_name
from glidemq_async.option_checks import MAX_LEASE, MIN_LEASE, positive_number, whole_number
from glidemq_async.outbox import Outbox
from glidemq_async.serialization import Serializer
from glidemq_async.storage import Storage, Subscription
from glidemq_async.worker import execution
from glidemq_async.worker.batches import BatchOptions, Processor, batcher_of
from glidemq_async.worker.claiming import ClaimLoop
from glidemq_async.worker.execution import AfterExecution
from glidemq_async.worker.feedback import Feedback
from glidemq_async.worker.leases import LeaseKeeper
from glidemq_async.worker.listeners import Listener, Listeners, WorkerEvent
from glidemq_async.worker.relaying import Relaying
from glidemq_async.worker.runs import BackoffStrategy, Run, Runner
from glidemq_async.worker.signals import stop_on_signals
from glidemq_async.worker.slots import Held, Slots
from glidemq_async.worker.sweeping import Sweeper

CANCEL_SECONDS: Final = 0.5
"""How long cancelled handlers may take to end at shutdown before they are left behind."""
SIGN_ON_SECONDS: Final = 10.0
HELD_BACK_SECONDS: Final = 0.5
"""How often a worker that runs until nothing waits looks whether jobs are still held back."""
RELEASE_SECONDS: Final = 5.0
"""How long storing the last outcomes and signing off may take when the server is slow or away."""

_log = logging.getLogger(__name__)


class Worker(Generic[Data, Result]):
    """Runs the jobs of one queue, at most `concurrency` at a time.

    `processor` takes a Job and returns its result. `await worker.run()` works until SIGTERM, SIGINT or `stop()`;
    `async with worker` works in the background of the block. `storage`, `prefix`, `mode`, `serializer` and
    `payload_limit` (bytes, for one result) are those of Queue. Durations are seconds:

    - `batch`: the processor takes a list of jobs, at most `batch.size`, and returns a list with one entry per job, in
      order; an entry that is an exception is what that job raised. None completes all of them, an exception fails all.
      `concurrency` is then the number of batches at a time.
    - `executor`: "inline" (the default for coroutine functions), "thread" (for plain ones), the name of a registered
      one, or an Executor.
    - `lock_duration`: the lease of a run, renewed while it runs; a dead worker's jobs start elsewhere after it.
    - `max_stalled`: how often a job may lose its lease (its worker died) before it is failed as "stalled".
    - `poll_interval`: how often an idle worker looks by itself, in case a wake-up was lost.
    - `shutdown_timeout`: how long running jobs may take to end once the worker stops; what is left is handed back.
    - `backoff_strategies`: functions of (attempts made, error) to seconds, for `Backoff.custom(name)`.
    - `dead_letter_queue`: the name of a queue to which what fails for good is moved as well. It is kept with the
      queue and holds for all its workers, the last one that starts wins; None leaves what is kept. To end it:
      `queue.set_dead_letter_queue(None)`.
    - `after_execution`: a function of an Execution, called when a run was a job's last one, before its outcome is
      stored; it may change what is stored, and how long. What it raises is told as "error", and changes nothing.
    - `handle_signals`: False leaves SIGTERM and SIGINT to the program around it.
    - `name`: how the worker calls itself, host and process id by default; a random part is added.

    Raises ValueError or TypeError for bad options.
    """

    def __init__(
        self,
        queue: str,
        processor: Processor[Data, Result],
        storage: str | Storage | None = None,
        *,
        concurrency: int = 1,
        batch: BatchOptions | None = None,
        executor: str | Executor | None = None,
        lock_duration: float | timedelta = 30.0,
        max_stalled: int = 3,
        poll_interval: float | timedelta = 5.0,
        shutdown_timeout: float | timedelta = 30.0,
        backoff_strategies: Mapping[str, BackoffStrategy] | None = None,
        dead_letter_queue: str | None = None,
        after_execution: AfterExecution | None = None,
        handle_signals: bool = True,
        name: str | None = None,
        prefix: str = DEFAULT_PREFIX,
        mode: Literal["global", "keyed"] | None = None,
        serializer: Serializer | None = None,
        payload_limit: int | None = None,
    ) -> None:
        if not callable(processor):
            raise TypeError(f"processor must be a function of one job, got {processor!r}")
        self._concurrency = positive_number("concurrency", concurrency)
        self._max_stalled = whole_number("max_stalled", max_stalled, least=0)
        self._lock_ms = _lease_ms(lock_duration)
        self._poll_interval = to_ms("poll_interval", poll_interval, allow_zero=False) / 1000
        self._shutdown_timeout = to_ms("shutdown_timeout", shutdown_timeout) / 1000
        self._handle_signals = handle_signals
        self._dead_letter_queue = None
        if dead_letter_queue is not None:
            self._dead_letter_queue = check_dead_letter_queue(dead_letter_queue, queue)
        base = check_name("worker name", name) if name else f"{platform.node() or 'host'}-{os.getpid()}"
        self.name = f"{base}-{uuid.uuid4().hex[:8]}".translate(_NAME_SAFE)
        self._client = QueueClient(
            queue, storage, prefix=prefix, mode=mode, serializer=serializer, payload_limit=payload_limit
        )
        self._executor = open_executor(executor, processor, self._concurrency)
        self._batcher = batcher_of(batch, processor, self._executor)
        self._executor = self._batcher or self._executor
        self._listeners = Listeners()
        self._slots = Slots(self._concurrency * (batch.size if batch else 1), self._executor)
        self._feedback = Feedback(self.name, self._slots, self._listeners)
        self._runner = Runner(
            self._client,
            cast("Handler", processor),
            self._executor,
            _strategies(backoff_strategies),
            execution.checked(after_execution),
            self._feedback.on_error,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._stop_requested = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self._loop: ClaimLoop | None = None
        self._keeper: LeaseKeeper | None = None
        self._relaying: Relaying | None = None
        self._subscription: Subscription | None = None
        self._started = self._closed = False

    def __repr__(self) -> str:
        return f"<Worker {self.name} of {self._client.queue!r}, {len(self._slots)}/{self._concurrency} running>"

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._client.queue

    @property
    def storage(self) -> Storage:
        """Where the queue lives."""
        return self._client.storage

    @property
    def running(self) -> int:
        """How many jobs are in hand."""
        return len(self._slots)

    @property
    def last_seen(self) -> float | None:
        """Loop time of the last answered claim or settle call, None before the first: the sign of life."""
        return self._loop.last_call or None if self._loop else None

    def on(self, event: WorkerEvent, listener: Listener) -> None:
        """Call `listener` (a plain or coroutine function) at an event of this worker.

        active(job), completed(job, result), failed(job, error), retrying(job, error, delay), returned(job),
        lease_lost(job), stalled(recovered ids, failed ids), drained(), error(exception), closing(), closed().
        `completed`, `failed` and `retrying` are told after the store has accepted the outcome.
        """
        self._listeners.add(event, listener)

    # -- running --------------------------------------------------------------------------------------------------

    async def run(self, *, until_empty: bool = False) -> None:
        """Work until `stop()`, SIGTERM or SIGINT; then let running jobs end and hand back what is left.

        With `until_empty` it returns when no job waits any more: those that a limit or the pause of their key holds
        back are waited for, and so are the retries of jobs it ran; delayed jobs are left alone. It returns at once
        when the queue is paused. Raises what `start` raises.
        """
        with stop_on_signals(self.stop if self._handle_signals else None):
            try:
                await self.start()
                if until_empty:
                    await self.until_empty()
                else:
                    await self._stop_requested.wait()
            finally:
                await asyncio.shield(self.close())

    def stop(self) -> None:
        """Ask `run` to shut down; returns at once."""
        self._stop_requested.set()

    async def start(self) -> None:
        """Start working in the background. Raises StorageUnavailable, IncompatibleQueueError, QueueClosed."""
        if self._closed:
            raise QueueClosed(f"asked to start worker {self.name}, found it closed: make a new Worker")
        if self._started:
            return
        # Connecting may fail, and then the worker can be started again; what follows makes no calls.
        await self._client.open()
        if self._dead_letter_queue is not None:
            await self._client.functions.set_dead_letter_queue(self._dead_letter_queue)
        # Once this returns, get_workers tells of the worker.
        await self._client.functions.renew_leases(self.name, self._info(), [], SIGN_ON_SECONDS)
        if self._tasks:
            return
        self._started = True
        self._client.keep_time()
        self._loop = self._feedback.loop = self._make_loop()
        await self._executor.start(self._loop.wake)
        self._subscription = await self._client.storage.subscribe(
            self._client.keys.base,
            self._client.keys.channel(f"wake:{self.name}"),
            self._feedback.on_message,
            self._feedback.on_link,
        )
        self._loop.reset_subscription = self._subscription.reset
        self._keeper = self._make_keeper()
        self._keeper.start()
        self._feedback.renew = self._keeper.hurry
        self._relaying = Relaying(Outbox(self._client, self.name), self._feedback.on_error)
        self._loop.on_posted = self._relaying.wake
        sweeper = Sweeper(
            self._client.functions,
            lease=self._lock_ms / 1000,
            max_stalled=self._max_stalled,
            on_stalled=self._feedback.on_stalled,
            on_posted=self._relaying.wake,
            on_error=self._feedback.on_error,
            on_next_slot=self._client.timekeeper.hint,
        )
        self._tasks = [asyncio.create_task(part.run()) for part in (self._loop, sweeper, self._relaying)]
        _log.info("worker %s works on queue %s of %s", self.name, self.queue, self.storage.url)
        self._loop.wake()

    def _make_loop(self) -> ClaimLoop:
        return ClaimLoop(
            self._client,
            Lane(self.name),
            self.name,
            lock_ms=self._lock_ms,
            poll_interval=self._poll_interval,
            free_slots=self._slots.free,
            start=self._start_run,
            settled=self._feedback.on_settled,
            on_error=self._feedback.on_error,
        )

    def _info(self) -> bytes:
        info = {
            "host": platform.node(),
            "pid": os.getpid(),
            "concurrency": self._concurrency,
            "started": round(time.time() * 1000),
        }
        return msgpack.packb(info)

    def _make_keeper(self) -> LeaseKeeper:
        return LeaseKeeper(
            self._client.storage,
            self._client.keys.base,
            self.name,
            self._info(),
            lambda: self._slots.shortest_lease(self._lock_ms / 1000),
            self._held,
            self._feedback.on_lost,
            self._feedback.on_revoked,
            self._feedback.on_health,
        )

    def _held(self) -> list[Held]:
        """Every lease to renew: of runs in hand, and of ended ones whose outcome is not stored. Any thread."""
        held = [(run.job.id, run.job.entry) for run in self._slots.runs()]
        settling = self._loop.settling if self._loop else []
        return held + [(ended.run.job.id, ended.run.job.entry) for ended in settling]

    def _start_run(self, job: Job[Any, Any]) -> None:
        """Raises SerializationError, and takes no slot, when the job's options cannot be read."""
        lease = job.options.lock_duration if job.has_options else None
        if self._slots.holds(job.entry):
            # The group was destroyed and made anew: the store hands out again what runs here already. The slot that
            # was meant for it is free still.
            if self._loop is not None:
                self._loop.wake()
            return
        run = Run(job)
        self._slots.take(run)
        if lease is not None and self._keeper is not None:
            self._keeper.shorten(lease)
        run.task = asyncio.create_task(self._run_job(run))
        if self._listeners.wants("active"):
            self._listeners.tell("active", job)

    async def _run_job(self, run: Run) -> None:
        try:
            ended = await self._runner.run(run)
        finally:
            self._slots.give_back(run)
        assert self._loop is not None  # noqa: S101 - runs exist only after start
        if ended is not None:
            self._loop.end(ended)
        else:
            self._loop.wake()
            self._listeners.tell("lease_lost", run.job)

    # -- stopping -------------------------------------------------------------------------------------------------

    async def until_empty(self) -> None:
        """Wait until a started worker finds nothing to claim, or is stopped; see `run`."""
        assert self._loop is not None  # noqa: S101 - started
        loop = asyncio.get_running_loop()
        if self._batcher is not None:
            self._batcher.hurry()
        while not self._stop_requested.is_set():
            await self._or_stopped(self._loop.found_nothing.wait())
            await self._or_stopped(self._slots.all_free.wait())
            if len(self._slots) or not self._loop.found_nothing.is_set():
                continue
            # Asked after the last retry was due: before, "nothing" says little about it.
            asked_at = self._loop.asked_at
            if await self._client.functions.is_paused():
                break
            if not self._loop.found_nothing.is_set():  # something came meanwhile
                continue
            if asked_at < self._feedback.retries_due:
                self._loop.found_nothing.clear()
                loop.call_at(self._feedback.retries_due, self._loop.wake)
                continue
            if not await self._left_waiting():
                break
            # A limit, a pause of their key or a run elsewhere holds them back. This worker is woken when it may take
            # one; it looks by itself too, for others may take them all.
            self._loop.found_nothing.clear()
            loop.call_later(HELD_BACK_SECONDS, self._loop.wake)
        self._listeners.tell("drained")

    async def _left_waiting(self) -> bool:
        """Whether jobs wait that are not delayed."""
        counts = await self._client.functions.count_jobs()
        return any(counts[state] for state in ("waiting", "prioritized", "key-waiting", "rate-limited"))

    async def _or_stopped(self, event: Coroutine[Any, Any, object]) -> None:
        """Wait for an event, or for the worker to be stopped."""
        waits = [asyncio.create_task(event), asyncio.create_task(self._stop_requested.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def close(self) -> None:
        """Stop claiming, let running jobs end for `shutdown_timeout`, hand back the rest, let go; idempotent."""
        if self._closing is None:
            self._closed = True
            self._stop_requested.set()
            self._closing = asyncio.create_task(self._close())
        # Whoever else closes meanwhile waits for the same end; cancelling one of them cuts nothing off.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._loop is None or not self._tasks:  # never started, or not to the end
            await self._client.close()
            return
        self._listeners.tell("closing")
        self._loop.stop()
        if failpoints.armed:
            failpoints.hit("shutdown.after_stop_claiming")
        await self._drain()
        if failpoints.armed:
            failpoints.hit("shutdown.before_release")
        await self._release()
        self._listeners.tell("closed")

    async def _drain(self) -> None:
        if self._batcher is not None:
            self._slots.stop_entries(self._batcher.gathered, "shutdown")
            self._batcher.hurry()
        try:
            async with asyncio.timeout(self._shutdown_timeout):
                await self._slots.all_free.wait()
                return
        except TimeoutError:
            pass
        left = self._slots.runs()
        if not left:  # the last one ended together with the time
            return
        _log.warning("worker %s: %d jobs did not end in time and are handed back", self.name, len(left))
        for run in left:
            run.stop("shutdown")
        if tasks := [run.task for run in left if run.task]:
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)

    async def _release(self) -> None:
        """Store the last outcomes, hand back what did not end, and leave; bounded in time."""
        assert self._loop is not None  # noqa: S101 - started
        self._loop.finish()
        loop_task, *others = self._tasks
        for task in others:
            task.cancel()
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await asyncio.shield(loop_task)
                await self._finish_relaying(others)
                # Before signing off: a renewal that came later would enter this worker again.
                await self._stop_keeper()
                await self._client.functions.close_worker(self.name)
        except (TimeoutError, GlideMQError) as error:
            _log.warning("worker %s: could not sign off, its jobs return when their leases end: %r", self.name, error)
        loop_task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stop_keeper()
        if self._subscription is not None:
            await self._subscription.close()
        await self._executor.stop(0.0)
        await self._client.close()

    async def _finish_relaying(self, stopped: list[asyncio.Task[None]]) -> None:
        """Deliver what the last outcomes posted. What stays is relayed by the next worker of the queue."""
        await asyncio.gather(*stopped, return_exceptions=True)
        if self._relaying is not None:
            await self._relaying.finish()

    async def _stop_keeper(self) -> None:
        if self._keeper is not None:
            await self._keeper.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


_NAME_SAFE: Final = str.maketrans("{}:", "---")


def _strategies(found: Mapping[str, BackoffStrategy] | None) -> dict[str, BackoffStrategy]:
    for name, strategy in (found or {}).items():
        if not callable(strategy):
            raise TypeError(
                f"backoff_strategies[{name!r}] must be a function of (attempts made, error), got {strategy!r}"
            )
    return dict(found or {})


def _lease_ms(value: float | timedelta) -> int:
    milliseconds = to_ms("lock_duration", value, allow_zero=False)
    if not MIN_LEASE * 1000 <= milliseconds <= MAX_LEASE * 1000:
        raise ValueError(f"lock_duration must be from 1 second to 24 hours, got {value!r}")
    return milliseconds
