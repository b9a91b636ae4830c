"""The worker: claims jobs of one queue and runs them. The other modules of this folder are its parts."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, Unpack, cast

import anyio
import msgpack
from typing_extensions import override

from glidemq_async._internal import failpoints
from glidemq_async._internal.generics import Data, Result
from glidemq_async._internal.waits import first_of
from glidemq_async.client.queue_client import DEFAULT_PREFIX, QueueClient
from glidemq_async.errors import GlideMQError
from glidemq_async.executors.protocol import Executor, Handler, KnowsTasks, SharesTasks, grace_of, is_elastic
from glidemq_async.executors.registry import check_parameters, open_executor
from glidemq_async.executors.sharing import ExecutorUse
from glidemq_async.instrumentation import WorkerPart, instruments_of
from glidemq_async.jobs.job import Job
from glidemq_async.options.batch import BatchOptions
from glidemq_async.options.budget import JobBudget
from glidemq_async.options.retry_rules import RetryRules
from glidemq_async.options.validation import positive_number
from glidemq_async.queues.dead_letters import check_dead_letter_queue
from glidemq_async.storage import Storage, StorageLike
from glidemq_async.topics.feeding import FeedSource
from glidemq_async.worker.batches import Batcher, Processor, batcher_of
from glidemq_async.worker.health import Health, health_of, unstarted
from glidemq_async.worker.health_server import HasHealth, HealthServer
from glidemq_async.worker.lifecycle import Runs
from glidemq_async.worker.listeners import Listener, Listeners, WorkerEvent
from glidemq_async.worker.options import WorkerKeywords, WorkerOptions, own_version, worker_options
from glidemq_async.worker.reports import Reports
from glidemq_async.worker.runs import RunFunction, Runner
from glidemq_async.worker.session import Session
from glidemq_async.worker.slots import Slots

CANCEL_SECONDS: Final = 0.5
"""Time that cancelled handlers may take to end at shutdown."""
SIGN_ON_SECONDS: Final = 10.0
"""Time limit for the call that registers the worker."""
MAX_INFO_BYTES: Final = 4_000
"""Maximum size of a worker's description with the names of its tasks. Each renewal of its leases sends it."""
SIGN_OFF_SECONDS: Final = 1.0
"""Time limit for the sign-off after a failed start. After that, the sweep removes the worker from the list."""

_log = logging.getLogger(__name__)


class Worker(Runs, Generic[Data, Result]):
    """Runs the jobs of one queue, at most `concurrency` at a time.

    `processor` takes a Job and returns its result. `await worker.run()` works until SIGTERM, SIGINT or `stop()`.
    `async with worker` works in the background of the block.

    `options` and the keywords are described in WorkerOptions. A keyword replaces the value in `options`. Further
    keywords:

    - `batch`: BatchOptions. The processor then takes a list of at most `batch.size` jobs, and returns a list with one
      entry per job, in order. An entry that is an exception fails that job. Returning None completes all jobs; raising
      fails all of them. `concurrency` is then the number of batches at a time.
    - `storage`, `prefix`, `mode`, `serializer`, `codecs`, `timeout` (of calls to the server): as for Queue.
    - `instrumentation`: hooks for the runs and for the start and stop of the worker: see glidemq_async.telemetry.

    Raises TypeError or ValueError for bad options.
    """

    def __init__(
        self,
        queue: str,
        processor: Processor[Data, Result],
        storage: StorageLike = None,
        *,
        options: WorkerOptions | None = None,
        **keywords: Unpack[WorkerKeywords],
    ) -> None:
        self._options, rest = worker_options(options, keywords, WorkerKeywords)
        super().__init__(handle_signals=self._options.handle_signals)
        if not callable(processor):
            raise TypeError(f"processor must be a function of one job, got {processor!r}")
        batch, self._instruments = rest.pop("batch", None), instruments_of(rest.pop("instrumentation", ()))
        self._concurrency = self._first_concurrency = self._options.concurrency or 1
        self._health_server = _health_server(self, self._options.health_port)
        self._name = _unique(self._options.name)
        self._client = _client_of(queue, storage, self._options, rest)
        self._batcher, self._executor = self._open_executor(processor, batch)
        self._executor_use = ExecutorUse(self._executor, self._break)
        self._listeners = Listeners(self._tasks)
        self._slots = Slots(self._concurrency * (batch.size if batch else 1), self._executor)
        self._reports = Reports(f"{self.name} of queue {self.queue}", self._listeners, self._instruments)
        self._run, self._runner = self._make_run(cast("Handler", processor))
        self._stop_now = asyncio.Event()
        self._session: Session | None = None
        self._source: FeedSource | None = None
        self._instrumented = False
        self._paused = False

    def _open_executor(
        self, processor: Processor[Data, Result], batch: BatchOptions | None
    ) -> tuple[Batcher | None, Executor]:
        """Return the batcher if `batch` is set, and the object that starts runs: the batcher or the executor."""
        chosen = open_executor(self._options.executor, processor, self._concurrency)
        batcher = batcher_of(batch, processor, chosen, self._tasks, self._break)
        check_parameters(processor, chosen, "a list of jobs" if batch else "a job")
        return batcher, batcher or chosen

    def _make_run(self, handler: Handler) -> tuple[RunFunction, Runner | None]:
        options = self._options
        runner = Runner(
            self._client,
            handler,
            self._executor,
            options.backoff_strategies,
            options.after_execution,
            self._reports.error,
            self._instruments,
            options.max_stalled,
            RetryRules.checked(options.retry_on, options.give_up_on),
        )
        if self._instruments:
            return runner.run_instrumented, None
        return (runner.run, runner) if options.after_execution is None else (runner.run_reviewed, None)

    def _may_share(self) -> Callable[[Job[Any, Any]], bool] | None:
        if self._instruments or not isinstance(self._executor, SharesTasks):
            return None
        return self._executor.may_share

    def __repr__(self) -> str:
        return f"<Worker {self.name} of {self._client.queue!r}, {len(self._slots)}/{self._concurrency} running>"

    @property
    def name(self) -> str:
        """The name of the worker: the option `name`, or host and process id, with a random part."""
        return self._name

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._client.queue

    @property
    def storage(self) -> Storage:
        """The storage of the queue."""
        return self._client.storage

    @property
    def running(self) -> int:
        """The number of current runs."""
        return len(self._slots)

    def health(self) -> Health:
        """Return whether the worker is alive and takes jobs, and the problems if not. Only call this in its loop."""
        running = len(self._slots)
        if self._session is None:
            return unstarted(running)
        return health_of(
            self._session.loop,
            poll_interval=self._options.poll_interval,
            free=self._slots.free(),
            running=running,
        )

    def on(self, event: WorkerEvent, listener: Listener) -> None:
        """Call `listener` (a plain or coroutine function) at an event of this worker.

        The events and their arguments are active(job), completed(job, result), failed(job, error), retrying(job, error,
        delay), returned(job), lease_lost(job), stalled(recovered ids, failed ids), drained(), disconnected(),
        reconnected(), error(exception), closing() and closed(). `completed`, `failed` and `retrying` follow after the
        store has accepted the outcome. `drained` follows the end of the last run, when a claim finds no further job.
        `disconnected` follows the loss of the subscription for wake-ups.
        """
        self._listeners.add(event, listener)

    # -- control at run time --------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """True between `pause` and `resume`."""
        return self._paused

    def pause(self) -> None:
        """Claim no more jobs until `resume`. Running jobs continue, and so do the other workers of the queue.

        Jobs whose claim is in flight still start. Returns immediately.
        """
        self._set_paused(True)

    def resume(self) -> None:
        """End a pause of this worker."""
        self._set_paused(False)

    def _set_paused(self, paused: bool) -> None:
        self._paused = paused
        if self._session is not None:
            self._session.loop.pause(paused)
        self._describe()

    def set_concurrency(self, concurrency: int) -> None:
        """Change the number of jobs, or of batches, that run at the same time. Running jobs continue.

        A worker of coroutine functions that run inline may have any number. Executors with threads and processes are
        created for the concurrency that the worker began with, and cannot exceed it. Raises TypeError or ValueError.
        """
        wanted = positive_number("concurrency", concurrency)
        if wanted > self._first_concurrency and not is_elastic(self._executor):
            raise ValueError(
                f"concurrency must be at most {self._first_concurrency}, got {wanted}: the executor of worker "
                f"{self.name} was created for {self._first_concurrency} jobs; create the worker with more"
            )
        self._slots.most = wanted * (self._slots.most // self._concurrency)
        self._concurrency = wanted
        self._wake()
        self._describe()

    def _describe(self) -> None:
        if self._session is not None and self._tasks.is_open:
            info = self._info()
            self._session.renewer.describe(info)
            self._tasks.start(self._send_description(info))

    async def _send_description(self, info: bytes) -> None:
        # Only people read it, and each renewal of a worker that was forgotten sends it again.
        with suppress(GlideMQError):
            await self._client.functions.leases.describe(self.name, info)

    def _obey(self, command: str) -> None:
        word, _, number = command.partition(" ")
        _log.info("worker %s of queue %s gets the command %r", self.name, self.queue, command)
        if word == "pause":
            self.pause()
        elif word == "resume":
            self.resume()
        elif word == "stop":
            self.stop()
            self._describe()
            self._begin_closing()
        elif word == "concurrency":
            try:
                self.set_concurrency(int(number))
            except ValueError as error:
                self._reports.error(error)

    # -- running --------------------------------------------------------------------------------------------------

    @override
    def stop(self, *, immediately: bool = False) -> None:
        super().stop()
        if immediately:
            self._stop_now.set()

    @override
    async def _start(self) -> None:
        if self._health_server is None:
            await self._start_session()
            return
        await self._health_server.start()
        try:
            await self._start_session()
        except BaseException:
            await self._health_server.close()
            raise

    async def _start_session(self) -> None:
        # After any failure here the worker can be started again: `open` and the executor's start are idempotent, and
        # `close` undoes both. Only the registration is undone here, because other clients see it.
        await self._client.open()
        # Registered before the first claim: the topic keeps its messages for the subscription from now on.
        if self._source is not None:
            await self._source.join()
        await self._start_instruments()
        # Start the executor before the worker is registered, because a worker must not claim jobs that it cannot run.
        await self._executor_use.start(self._wake)
        session = self._make_session()
        try:
            # When this returns, get_workers lists the worker.
            await self._client.functions.leases.renew(self.name, self._info(), [], SIGN_ON_SECONDS)
            self._client.keep_time()
            await session.start()
        except BaseException:
            await self._sign_off()  # the registration may have succeeded even if its reply was lost
            raise
        self._session = session
        if self._paused:
            session.loop.pause(True)
        _log.info("worker %s works on queue %s of %s", self.name, self.queue, self.storage.url)

    async def _sign_off(self) -> None:
        with suppress(GlideMQError), anyio.move_on_after(SIGN_OFF_SECONDS, shield=True):
            await self._client.functions.stalled.close_worker(self.name)

    async def _start_instruments(self) -> None:
        if not self._instruments or self._instrumented:
            return
        self._instrumented = True
        try:
            await self._instruments.start(self._part())
        except BaseException:
            self._instrumented = False
            raise

    async def _stop_instruments(self) -> None:
        if self._instrumented:
            self._instrumented = False
            await self._instruments.stop(self._part())

    def _part(self) -> WorkerPart:
        return WorkerPart(self.name, self.queue, self._client.depth, lambda: len(self._slots))

    def _break(self, error: Exception) -> None:
        if self.broken is None:
            self._break_off(error)
            self._closed = True
            if self._tasks.is_open:  # otherwise nothing has started, and nothing must be closed
                self._reports.error(error)
                self._begin_closing()

    def _wake(self) -> None:
        if self._session is not None:
            self._session.loop.wake()

    def _make_session(self) -> Session:
        return Session(
            self._client,
            self.name,
            self._info(),
            self._options,
            slots=self._slots,
            reports=self._reports,
            listeners=self._listeners,
            run=self._run,
            runner=self._runner,
            may_share=self._may_share(),
            is_batching=self._batcher is not None,
            tasks=self._tasks,
            on_defect=self._break,
            on_command=self._obey,
            source=self._source,
        )

    def _info(self) -> bytes:
        info = {
            "host": platform.node(),
            "pid": os.getpid(),
            "concurrency": self._concurrency,
            "started": round(time.time() * 1000),
            "slots": self._slots.most,
            "state": "stopping" if self._stop_requested.is_set() else "paused" if self._paused else "running",
            "version": self._client.version,
        }
        if isinstance(self._executor, KnowsTasks):
            packed = msgpack.packb(info | {"tasks": sorted(self._executor.task_names)})
            if len(packed) <= MAX_INFO_BYTES:
                return packed
        return msgpack.packb(info)

    # -- stopping -------------------------------------------------------------------------------------------------

    @override
    async def _run_until_empty(self) -> None:
        await self.until_empty()

    async def until_empty(self, *, wait: bool = True) -> None:
        """Wait until a started worker finds nothing to claim, or is stopped; see `run`.

        With `wait=False` it does not wait for retries or for jobs that a limit holds back. Raises RuntimeError if the
        worker has not been started.
        """
        if self._session is None:
            raise RuntimeError(
                f"worker {self.name} of queue {self.queue!r} has not been started; "
                "call start() first, or run(until_empty=True), which starts it"
            )
        if self._batcher is not None:
            self._batcher.flush()
        while True:
            moved = await self._session.feed()
            self._session.is_bursting = True
            await self._session.until_empty(self._stop_requested, wait=wait)
            if not moved or self._stop_requested.is_set():
                break
        self._session.is_bursting = False
        self._listeners.notify("drained")

    @override
    async def _close(self) -> None:
        try:
            await self._stop_working()
        finally:
            # Close the health server last, so that probes see that the worker is stopping.
            if self._health_server is not None:
                await self._health_server.close()

    async def _stop_working(self) -> None:
        session = self._session
        if session is None:  # never started, or the start failed
            await self._disconnect()
            return
        self._listeners.notify("closing")
        session.loop.stop()
        if failpoints.armed:
            failpoints.hit("shutdown.after_stop_claiming")
        await self._end_runs()
        if failpoints.armed:
            failpoints.hit("shutdown.before_release")
        await session.release()
        await self._disconnect()
        self._reports.stopped(len(session.loop.outcomes.unconfirmed))
        self._listeners.notify("closed")

    async def _end_runs(self) -> None:
        if self._batcher is not None:
            self._slots.stop_entries(self._batcher.gathered, "shutdown")
            self._batcher.flush()
        with anyio.move_on_after(self._options.shutdown_timeout):
            await first_of(self._slots.all_free, self._stop_now)
        # Runs are left that did not end in time. After `stop(immediately=True)` these are all. Their jobs return to the
        # queue and run elsewhere, so a run must not continue here. A coroutine is cancelled. A thread cannot be
        # stopped: its job is released, its late outcome has no run that could settle it, and its progress is refused by
        # the fencing token.
        left = self._slots.runs()
        if not left:
            return
        why = "was stopped immediately" if self._stop_now.is_set() else "has reached its shutdown_timeout"
        _log.warning("worker %s %s; %d running jobs are released", self.name, why, len(left))
        for run in left:
            run.stop("shutdown")
        # Runs in other processes must end before their jobs are released. Otherwise two runs would overlap.
        with anyio.move_on_after(CANCEL_SECONDS + grace_of(self._executor)):
            await self._slots.all_free.wait()

    async def _disconnect(self) -> None:
        await self._executor_use.stop(0.0)
        await self._stop_instruments()
        await self._client.close(
            f"worker {self.name} of queue {self.queue!r} is closed, and with it the jobs that it ran; get the job with "
            "get_job(id) of a Queue"
        )


def feed_from(worker: Worker[Any, Any], source: FeedSource) -> None:
    """Give a worker that has not started a subscription to serve."""
    worker._source = source  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def feed_now(worker: Worker[Any, Any]) -> None:
    """Move the messages that have arrived for the subscription of a started worker."""
    if worker._session is not None:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        await worker._session.feed()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _client_of(queue: str, storage: StorageLike, options: WorkerOptions, settings: dict[str, Any]) -> QueueClient:
    dead_letter_queue = options.dead_letter_queue
    if dead_letter_queue is not None:
        check_dead_letter_queue(dead_letter_queue, queue)
    settings = {"prefix": DEFAULT_PREFIX, "mode": None, **settings}
    client = QueueClient(
        queue, storage, payload_limit=options.payload_limit, dead_letter_queue=dead_letter_queue, **settings
    )
    client.budget = options.budget or JobBudget()
    client.version = own_version(options.version)
    client.most_warm_runs = options.warm_runs
    if options.stream_limits is not None:
        client.chunk_writer.limits = options.stream_limits
    if options.step_limits is not None:
        client.step_writer.limits = options.step_limits
    return client


def _health_server(worker: HasHealth, port: int | None) -> HealthServer | None:
    return None if port is None else HealthServer([worker], port)


_NAME_SAFE: Final = str.maketrans("{}:", "---")


def _unique(name: str | None) -> str:
    base = name or f"{platform.node() or 'host'}-{os.getpid()}"
    return f"{base}-{uuid.uuid4().hex[:8]}".translate(_NAME_SAFE)
