"""The connection of a process to one queue: store keys, functions, payloads, results and schedulers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from glidemq_async._internal import forks
from glidemq_async._internal.loops import Home
from glidemq_async.client.chunk_writer import ChunkWriter
from glidemq_async.client.job_tail import JobTail
from glidemq_async.client.migration import migrate
from glidemq_async.client.payload_coder import DEFAULT_LIMIT, Payloads
from glidemq_async.client.result_listener import ResultListener
from glidemq_async.client.scheduler_runner import SchedulerRunner
from glidemq_async.client.step_writer import StepWriter
from glidemq_async.client.warm_runs import WarmRuns
from glidemq_async.errors import IncompatibleQueueError, JobStateError, PayloadTooLarge
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import ANY_INCARNATION
from glidemq_async.functions.queue import QueueState
from glidemq_async.functions.signals import BufferedSignal
from glidemq_async.functions.steps import StoredJournal
from glidemq_async.instrumentation import QueueDepth
from glidemq_async.options.budget import JobBudget
from glidemq_async.options.steps import StepLimits
from glidemq_async.payloads.codecs import Codec
from glidemq_async.payloads.serialization import Serializer
from glidemq_async.storage import Storage, StorageLike, open_storage
from glidemq_async.storage.protocol import FunctionError
from glidemq_async.storage.redis import access
from glidemq_async.storage.redis.server import ServerStorage, close_owned, servers_of
from glidemq_async.stored.dead_letter import DeadLetter
from glidemq_async.stored.names import QueueKeys

DEFAULT_PREFIX: Final = "glide"


def older_layout(queue: str) -> str:
    """Return the error text for a queue that still has the layout of an older version."""
    return (
        f"queue {queue!r} has the layout of an older version; the first worker or producer of this version that opens "
        "it migrates it"
    )


class QueueClient:
    """The connection of one process to one queue. `close` also closes the storage if this object has opened it.

    With `lean` the client adds jobs without opening the queue first. It opens the queue if the server refuses an add.
    """

    def __init__(
        self,
        queue: str,
        storage: StorageLike,
        *,
        prefix: str,
        mode: str | None,
        serializer: Serializer | None = None,
        codecs: Sequence[Codec] = (),
        payload_limit: int | None = None,
        dead_letter_queue: str | None = None,
        timeout: float | timedelta | None = None,
        lean: bool = False,
    ) -> None:
        self.keys = QueueKeys(prefix, queue)
        check_mode(mode)
        self._lean = lean
        self.payloads = Payloads(self.keys.base, serializer, codecs, payload_limit)
        self.encode, self.decode = self.payloads.encode, self.payloads.decode
        self.owns_storage = not isinstance(storage, Storage)
        self.storage: Storage = open_storage(storage, timeout=timeout)
        self.most_warm_runs = 0
        """The number of suspended workflows that stay in memory; 0 for clients of queues."""
        self.budget: JobBudget | None = None
        """The budget of the worker for each run; None for clients of queues."""
        self.version = ""
        """The version of the worker's code, "" for clients of queues."""
        self.is_observer = False
        """True for tools that look at a queue: they fire no job schedulers, and migrate no queue."""
        self._mode = mode
        self._dead_letter_queue = dead_letter_queue
        self._begin()
        forks.watch(self)

    def _begin(self) -> None:
        """Create the parts that are not connected yet, with new request channels and a new client id."""
        # The id names the reply channel, and the new `Functions` have new request channels. If a forked child used
        # those of its parent, the server would take a call of the one process for a repetition of a call of the other.
        self.id = uuid.uuid4().hex
        self.functions = Functions(self.storage, self.keys.base)
        if self._lean:
            self.functions.caller.incarnation = ANY_INCARNATION
        self.results = ResultListener(self.storage, self.functions, self.id)
        self.tail = JobTail(self.storage, self.functions)
        self.chunk_writer = ChunkWriter(self.functions.streaming)
        self.step_writer = StepWriter(self.functions.steps)
        self.warm_runs: WarmRuns | None = None
        self.scheduler_runner = SchedulerRunner(self.functions, self.id)
        self._opening = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.state: QueueState | None = None

    def _after_fork(self) -> object:
        """Reset in a forked child, because two processes must not share a request channel; see `_internal/forks.py`."""
        chunks = (self.tail, self.chunk_writer, self.step_writer)
        parents = (self.functions, self.results, chunks, self.scheduler_runner, self._opening, self._loop)
        self._begin()
        return parents

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the client, None before it is opened and after it is closed."""
        # A lean client is never opened. Its storage has the loop of the first call.
        if self._lean and isinstance(self.storage, Home):
            return self.storage.loop
        return self._loop

    @property
    def home(self) -> Home:
        """The object that decides the event loop of this client: the storage if that is shared, else the client."""
        return self.storage if not self.owns_storage and isinstance(self.storage, Home) else self

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self.keys.queue

    async def open(self) -> None:
        """Connect, check the stored queue, and declare this client's settings. Idempotent.

        Migrates the queue first if an older version created it. Raises StorageUnavailable, IncompatibleQueueError,
        OldWorkersRunning, and ValueError if the payload limit exceeds the server's own.
        """
        # Every method of a queue calls this, so the first check must cost nothing. The second one is needed because
        # another task may have opened the client while this one waited for the lock.
        if self.state is None:
            async with self._opening:
                if self.state is None:
                    await self.storage.connect()
                    if self.payloads.limit > DEFAULT_LIMIT and isinstance(self.storage, ServerStorage):
                        await servers_of(self.storage).refuse_larger("payload_limit", self.payloads.limit)
                    self._loop = asyncio.get_running_loop()
                    await self._declare()

    async def open_again(self, known: str) -> None:
        """Declare the queue again after it was recreated. Does nothing if another task has already done so.

        `known` is the incarnation that no longer exists. Raises the same errors as `open`.
        """
        async with self._opening:
            # Many calls in flight get the same refusal. The first one declares the queue again, and the others find a
            # new incarnation.
            if self.functions.caller.incarnation == known:
                await self._declare()

    def keep_time(self) -> None:
        """Start to fire the queue's job schedulers. Idempotent. Only for an open client."""
        assert self.state is not None  # noqa: S101 - open
        if self.is_observer:
            return
        self.scheduler_runner.start(any_scheduled=self.state.has_schedulers)

    async def _declare(self) -> None:
        try:
            self.state = await self._open_stored()
        except FunctionError as error:
            raise self.refused(error) from None
        except access.CallRefused as refusal:
            self.state = await self._look_at_stored(refusal)
        if self.state.missing_rules:
            access.warn(self.storage.url, self.state.missing_rules)

    async def _open_stored(self) -> QueueState:
        while True:
            try:
                return await self.functions.queue.open(self._mode, self._dead_letter_queue)
            except FunctionError as error:
                if error.code != "MIGRATE":
                    raise
                if self.is_observer:
                    raise IncompatibleQueueError(older_layout(self.queue)) from None
            # In a loop, because the queue may be lost and created again by an older version.
            await migrate(self.functions, self.queue)

    async def _look_at_stored(self, refusal: access.CallRefused) -> QueueState:
        """Return the state of the queue for a user that may only read. Raises the refusal for any other user."""
        # Opening a queue writes its declaration. A user that may not call FCALL writes nothing later either, so it does
        # not need the declaration. It cannot create the queue.
        if refusal.rule != "+fcall" or not await self.functions.queue.exists():
            raise refusal
        paused = await self.functions.reading.is_paused()
        return QueueState("", mode=None, paused=paused, has_schedulers=False, incarnation="")

    async def stream(self, job_id: str, entry: str, packed: bytes) -> str:
        """Append a chunk to the stream of a running job. Return the status. Raises JobStateError outside of a run."""
        if not entry:
            raise JobStateError(f"stream from job {job_id}", "not running here", "call job.stream() in its handler")
        return await self.chunk_writer.write(job_id, entry, packed)

    @property
    def step_limits(self) -> StepLimits:
        """The limits of the journal of each job."""
        return self.step_writer.limits

    async def read_steps(self, job_id: str) -> StoredJournal:
        """Read the journal of a job."""
        return await self.functions.steps.read(job_id)

    def record_step(
        self, job_id: str, entry: str, identity: str, packed: bytes, signal: bytes = b""
    ) -> asyncio.Future[str]:
        """Record a step of a run. The future has the status. The step takes a `signal` out of the mailbox."""
        if signal:
            return self.step_writer.receive(job_id, entry, identity, packed, signal)
        return self.step_writer.record(job_id, entry, identity, packed)

    async def depth(self) -> QueueDepth:
        """Read the depth of the queue in one call, which changes nothing."""
        figures = await self.functions.summary.read(most_workers=1)
        oldest = None if figures.oldest is None else max(0.0, (figures.now - figures.oldest) / 1000)
        return QueueDepth(figures.counts, oldest, figures.alive)

    async def read_mailbox(self, job_id: str) -> list[BufferedSignal]:
        """Return the signals that a job has not received yet."""
        return await self.functions.signals.mailbox(job_id)

    async def heartbeat(self, job_id: str) -> None:
        """Do nothing. Leases of runs in this process are renewed as long as the process lives."""

    def refused(self, error: FunctionError) -> Exception:
        """Return the error for a user when a function does not accept the stored queue."""
        if error.code not in {"INCOMPATIBLE", "WRONGTYPE"}:
            return error
        return IncompatibleQueueError(
            f"queue {self.queue!r} on {self.storage.url} cannot be used: {error.message}; "
            "use another queue name or prefix, or the settings with which the queue was created"
        )

    def sibling(self, queue: str) -> QueueClient:
        """Return a client for another queue with the same storage and prefix."""
        return self._other(QueueKeys(self.keys.prefix, queue))

    def at(self, base: str) -> QueueClient:
        """Return a client for the queue with this base key in the same storage."""
        return self._other(QueueKeys.of(base))

    def _other(self, keys: QueueKeys) -> QueueClient:
        return QueueClient(keys.queue, self.storage, prefix=keys.prefix, mode=None)

    @property
    def has_mode(self) -> bool:
        """True if the queue, as known from `open`, has a mode that excludes some jobs."""
        return self.state is not None and self.state.mode is not None

    def fits(self, key: str | None) -> bool:
        """Return whether the mode of the queue, as known from `open`, allows a job with this key (or without one)."""
        mode = self.state.mode if self.state else None
        return mode is None or (mode == "keyed") == (key is not None)

    async def refuse_key(self, key: str | None) -> None:
        """Raise ValueError if the mode does not allow this key. Reads the mode again, because it may have changed."""
        if self._mode is None:
            # This client declares no mode and had adopted the stored one.
            async with self._opening:
                await self._declare()
        mode = self.state.mode if self.state else None
        if mode == "keyed" and key is None:
            raise ValueError(f'queue {self.queue!r} is of mode "keyed": every job needs a key=, but this one has none')
        if mode == "global" and key is not None:
            raise ValueError(
                f'queue {self.queue!r} is of mode "global": key={key!r} would have no effect; leave it out'
            )

    async def close(self, reason: str | None = None) -> None:
        """Stop listening, and close the storage if it was opened here. Idempotent.

        Later calls over that storage, for example of jobs, raise QueueClosed with the reason.
        """
        # The storage comes last: the two parts before it make their last calls over it.
        if self.warm_runs is not None:
            await self.warm_runs.close()
        await self.scheduler_runner.close()
        await self.results.close()
        await self.chunk_writer.close()
        await self.step_writer.close()
        await self.tail.close()
        self._loop = None
        if self.owns_storage:
            await close_owned(self.storage, reason)

    def check_text(self, text: str, what: str) -> None:
        """Raise TypeError unless `text` is a str, ValueError unless it is valid UTF-8, and PayloadTooLarge."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a {what} must be a str, not {text!r}")
        size = len(text.encode())
        if size > self.payloads.limit:
            raise PayloadTooLarge(what, size, self.payloads.limit, "payload_limit")

    def encode_data(self, value: object, name: str, job_id: str, origin: DeadLetter | None) -> bytes:
        """Encode new data of a job. Raises SerializationError or PayloadTooLarge."""
        return self.payloads.encode(value, "data", name, *self._binding(job_id, origin))

    def decode_data(self, data: bytes, name: str, job_id: str, origin: DeadLetter | None) -> object:
        """Decode the stored data of a job. Raises SerializationError."""
        if origin is None:
            return self.payloads.decode(data, "data", name, job_id)
        return self.payloads.decode(data, "data", name, *self._binding(job_id, origin), what=f"data of job {job_id}")

    def _binding(self, job_id: str, origin: DeadLetter | None) -> tuple[str, str]:
        """Return the job and queue to which data are bound.

        A dead letter stays bound to its origin, so it can go back.
        """
        if origin is None:
            return job_id, ""
        return origin.job_id, QueueKeys(self.keys.prefix, origin.queue).base


def check_mode(mode: str | None) -> None:
    """Raise ValueError for an invalid mode."""
    if mode not in (None, "global", "keyed"):
        raise ValueError(f'mode must be None, "global" or "keyed", got {mode!r}')
