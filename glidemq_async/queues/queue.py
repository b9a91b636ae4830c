"""The producer side of a queue: add jobs, inspect them, pause the queue. Workers run the jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Final, Literal, TypeAlias, Unpack, cast

from glidemq_async._internal import forks
from glidemq_async._internal.blocking import blocking
from glidemq_async._internal.connectable import Connectable
from glidemq_async._internal.generics import Data, Result
from glidemq_async._internal.loops import refuse_elsewhere
from glidemq_async.client.queue_client import DEFAULT_PREFIX, QueueClient
from glidemq_async.durations import instant_to_ms
from glidemq_async.errors import (
    QueueClosed,
    ResultTimeout,
)
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.calling import Wait
from glidemq_async.functions.checking import Finding
from glidemq_async.instrumentation import Addition, Instrumentation, instruments_of
from glidemq_async.jobs.batch import JobBatch
from glidemq_async.jobs.fields import Outcome
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import job_of_add, job_of_gone, note_options, result_of
from glidemq_async.options.ids import GeneratedIds, id_maker
from glidemq_async.options.job_options import JobOptions, JobOptionsDict, layered
from glidemq_async.options.stored_options import ReplyTo, pack_extra, stored_form
from glidemq_async.options.validation import optional_seconds
from glidemq_async.payloads.codecs import Codec
from glidemq_async.payloads.serialization import Serializer
from glidemq_async.queues.add_buffer import Added, Adder, split_into_calls
from glidemq_async.queues.awaited_add import STORED, AddJob, AwaitedAdd, AwaitedReply
from glidemq_async.queues.base import JobInput
from glidemq_async.queues.bulk_add import check_input, wait_for_parts
from glidemq_async.queues.cleaning import Cleaning
from glidemq_async.queues.dead_letters import DeadLetters
from glidemq_async.queues.event_rules import EventSettings
from glidemq_async.queues.explanation import Explaining
from glidemq_async.queues.failures import Failures
from glidemq_async.queues.finding import JobSearch
from glidemq_async.queues.integrity import check_queue
from glidemq_async.queues.job_history import JobHistories
from glidemq_async.queues.limits import Limits
from glidemq_async.queues.operations import Operations
from glidemq_async.queues.schedulers import Schedulers
from glidemq_async.queues.signals import Signals
from glidemq_async.queues.sync import SyncParts
from glidemq_async.queues.telemetry_headers import with_added_headers
from glidemq_async.storage import Storage, StorageLike
from glidemq_async.stored.names import check_id

Mode: TypeAlias = Literal["global", "keyed"]

_NO_OPTIONS: Final = JobOptions()
_new_request: Final = cast("Callable[[type[AddRequest], tuple[object, ...]], AddRequest]", tuple.__new__)  # pyright: ignore[reportUnknownMemberType]
MAX_CHECKED_NAMES: Final = 1_000
"""Maximum number of job names that a queue remembers as valid."""
# The payload of a job that is added without one. A queue with another Data type always passes a payload.
_NO_DATA: Final[Any] = None


class Queue(
    Cleaning[Data, Result],
    Limits[Data, Result],
    Schedulers[Data, Result],
    DeadLetters[Data, Result],
    Signals[Data, Result],
    Failures[Data, Result],
    JobHistories[Data, Result],
    JobSearch[Data, Result],
    Explaining[Data, Result],
    Operations[Data, Result],
    EventSettings[Data, Result],
    Connectable,
):
    """A named queue in a storage.

    Use it as an async context manager, or call `connect()` and `close()`. The first call connects automatically.

    - `storage` is a URL, a Storage, a client of redis.asyncio, or None. None means `$GLIDEMQ_URL`, and without that
      variable the embedded default.
    - `prefix` starts the name of every store key of the queue.
    - `mode` is stored with the queue. In "keyed" mode every job needs a `key`; in "global" mode no job may have one.
      None accepts the stored mode. If none is stored, keys are optional.
    - `default_options` apply to every job that does not override them.
    - `serializer` converts payloads to bytes (default: MsgpackSerializer). `codecs` then compress, encrypt or sign
      these bytes, in the given order. Both must be the same in every process that uses the queue.
    - `payload_limit` is the maximum size of one encoded payload in bytes (default: 1 MiB).
    - `timeout` is in seconds (default: 30). A call is retried for this time if the server does not reply, and then
      raises StorageUnavailable. A Storage object has its own timeout.
    - `ids` selects the ids of jobs without a `job_id`: "sequence" (1, 2, 3, … from the server), "uuid4" or "uuid7"
      (made by the client). UUIDs cannot be guessed, and "uuid7" ids sort by time.
    - `instrumentation` is called for every add: see glidemq_async.telemetry.

    A queue belongs to the event loop that first uses it.

    Raises TypeError or ValueError for a bad name or option. Connecting raises StorageUnavailable when the server cannot
    be reached, and IncompatibleQueueError when the stored queue belongs to another library, layout or mode.
    """

    _is_lean: ClassVar = False
    """True if adds are sent without opening the queue; see producer.py."""

    def __init__(
        self,
        name: str,
        storage: StorageLike = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        mode: Mode | None = None,
        default_options: JobOptions | None = None,
        serializer: Serializer | None = None,
        codecs: Sequence[Codec] = (),
        payload_limit: int | None = None,
        timeout: float | timedelta | None = None,
        instrumentation: Sequence[Instrumentation] = (),
        ids: GeneratedIds = "sequence",
    ) -> None:
        if default_options is not None and not isinstance(default_options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"default_options must be JobOptions, got {default_options!r}")
        self._client = QueueClient(
            name,
            storage,
            prefix=prefix,
            mode=mode,
            serializer=serializer,
            codecs=codecs,
            payload_limit=payload_limit,
            timeout=timeout,
            lean=self._is_lean,
        )
        self._instruments = instruments_of(instrumentation)
        self._add_one = self._add_instrumented if self._instruments else self._add
        self._defaults = default_options or _NO_OPTIONS
        self._new_id = id_maker(ids)
        if self._new_id is not None:  # so that the default kind of ids costs no check per job
            self._request = self._named_request  # type: ignore[method-assign]
        self._adders: dict[Wait, Adder] = {}
        self._checked_names: set[str] = set()
        self._closed = False
        forks.watch(self)

    def _after_fork(self) -> object:
        """Reset the queue in a forked child. Adds that were waiting belong to the parent; see `_internal/forks.py`."""
        adders, self._adders = self._adders, {}
        return adders

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} on {self._client.storage.url}>"

    @property
    def storage(self) -> Storage:
        """The storage of the queue. Pass it to other queues and workers to share its connections."""
        return self._client.storage

    @property
    def sync(self) -> SyncQueue[Data, Result]:
        """The methods for code without an event loop. `queue.sync.add(...)` blocks, in any thread."""
        return SyncQueue(self, self._client.home)

    async def connect(self) -> None:
        """Connect and check the stored queue. Idempotent; every other method connects when needed.

        Raises QueueClosed after `close`, StorageUnavailable and IncompatibleQueueError.
        """
        if self._closed:
            raise QueueClosed(f"queue {self.name!r} is closed; create a new Queue")
        await self._client.open()
        self._client.keep_time()

    async def close(self) -> None:
        """Send the waiting adds, then close the connections. Idempotent.

        Raises RuntimeError if the queue belongs to another event loop that is still running.
        """
        if self._closed:
            return
        refuse_elsewhere(self._client.loop, repr(self))
        self._closed = True
        try:
            for adder in self._adders.values():
                await adder.close()
        finally:  # also after a cancellation, because close() cannot run a second time
            await self._client.close(
                f"queue {self.name!r} is closed, and with it the jobs that it returned; create a new Queue, and get "
                "the job there with get_job(id)"
            )

    # -- adding ---------------------------------------------------------------------------------------------------

    async def add(
        self,
        name: str,
        data: Data = _NO_DATA,
        options: JobOptions | None = None,
        **keywords: Unpack[JobOptionsDict],
    ) -> Job[Data, Result]:
        """Add a job. When this returns, the job is stored and will reach exactly one final state.

        Options are the fields of JobOptions: an object (`options`), keywords, or both. A keyword overrides the same
        option of the object, and the object overrides the queue's defaults.

        `job.outcome` is "added", "duplicate" or "completed". The last two mean that a job with the same `job_id` or
        deduplication id exists; the returned object is then that job. `job.gone` is true if its record has been
        removed, because a throttle can outlive its job. Concurrent adds share calls to the server, so many tasks that
        add at the same time are much faster than one task that adds in sequence. The order of concurrent adds is not
        defined. `add_bulk` keeps the order of its jobs.

        Raises TypeError or ValueError for bad options, and SerializationError or PayloadTooLarge before the job is
        sent. Raises QueueFull, and StorageUnavailable; after the latter the job may have been stored. To retry safely,
        add it again with a `job_id`.
        """
        chosen = self._defaults if options is None and not keywords else layered(self._defaults, options, keywords)
        return await self._add_one(name, data, chosen, None)

    async def add_bulk(self, jobs: Iterable[JobInput[Data]]) -> JobBatch[Data, Result]:
        """Add many jobs, each given as (name, data) or (name, data, JobOptions). Return one job per input, in order.

        The returned list is a JobBatch, which also has the common progress and results of its jobs.
        All inputs are checked before the first one is sent. One call to the server holds up to 250 jobs and is stored
        as a whole. Raises what `add` raises. If some calls have succeeded and another one fails, `error.bulk` lists
        which inputs are stored, which are not, and which are unknown (see BulkOutcome).
        """
        return await self._add_bulk(jobs, None)

    async def _add_bulk(self, jobs: Iterable[JobInput[Data]], reply: ReplyTo | None) -> JobBatch[Data, Result]:
        inputs: list[tuple[str, Data, JobOptions]] = []
        for item in jobs:
            if type(item) is not tuple or not 2 <= len(item) <= 3:
                check_input(item)
            inputs.append((item[0], item[1], layered(self._defaults, item[2], {}) if len(item) > 2 else self._defaults))
        if not self._instruments or not inputs:
            return await self._add_all(inputs, reply)
        additions = [Addition(self.name, name, options.headers) for name, _, options in inputs]
        with self._instruments.adding(additions):
            instrumented = [
                (name, data, with_added_headers(options, addition))
                for (name, data, options), addition in zip(inputs, additions, strict=True)
            ]
            added = await self._add_all(instrumented, reply)
            for addition, job in zip(additions, added, strict=True):
                addition.id, addition.outcome, addition.size = job.id, job.outcome, job.data_size
        return added

    async def _add_all(
        self, inputs: Sequence[tuple[str, Data, JobOptions]], reply: ReplyTo | None
    ) -> JobBatch[Data, Result]:
        requests = [self._request(name, data, given, reply) for name, data, given in inputs]
        if self._client.state is None or self._closed:
            await self.connect()
        # Without an await in between, so that the jobs of this call share calls to the server as far as possible.
        futures = self._submitted(requests, await self._checked_keys([given for _, _, given in inputs]))
        stored: JobBatch[Data, Result] = JobBatch()
        for added in await wait_for_parts(futures):
            for offset, job_id in enumerate(added.ids):
                request, given = requests[len(stored)], inputs[len(stored)][2]
                if given is _NO_OPTIONS and not added.outcomes:
                    stored.append(job_of_add(self._client, request, job_id, added.now))
                else:
                    outcome = added.outcomes.get(offset, "added")
                    stored.append(await self._job(request, job_id, outcome, added.now, given))
        return stored

    async def _checked_keys(self, options: list[JobOptions]) -> list[JobOptions]:
        """Return the options. Raises ValueError if one has a key that the mode of the queue does not allow."""
        if self._client.has_mode:
            for given in options:
                if not self._client.fits(given.key):
                    await self._client.refuse_key(given.key)
        return options

    def _submitted(self, requests: Sequence[AddRequest], options: Sequence[JobOptions]) -> list[asyncio.Future[Added]]:
        """Submit the requests, in parts of which each is stored by one call. Return the future of each part."""
        if not options:
            return []
        first, in_order = options[0], len(options) > 1
        if all(given is first or given.durability == first.durability for given in options):
            adder = self._adder(first)
            return [adder.submit(part, in_order=in_order) for part in split_into_calls(requests)]
        return [
            self._adder(given).submit([request], in_order=True)
            for request, given in zip(requests, options, strict=True)
        ]

    async def add_and_wait(
        self,
        name: str,
        data: Data = _NO_DATA,
        options: JobOptions | None = None,
        *,
        wait_timeout: float | timedelta | None = None,
        revoke_if_abandoned: bool = True,
        **keywords: Unpack[JobOptionsDict],
    ) -> Result:
        """Add a job, wait for it, and return its result. Takes the same options as `add`.

        Raises what `add` raises, JobFailed, and ResultTimeout after `wait_timeout` seconds. Without `wait_timeout`, the
        call waits until the job has ended. The option `timeout` limits each run, and not the wait.

        A caller that runs out of time or is cancelled abandons the job. The job is then revoked, unless another client
        waits for it or this add was a duplicate. A job that has not started within `wait_timeout` expires, even if the
        process of the caller is gone. With `revoke_if_abandoned=False` an abandoned job continues.
        """
        chosen = self._defaults if options is None and not keywords else layered(self._defaults, options, keywords)
        add = partial(self._add_one, name, data, chosen)
        return await self._add_awaited(add, name, chosen.job_id, wait_timeout, tied=revoke_if_abandoned)

    async def _add_awaited(
        self, add: AddJob, name: str, job_id: str | None, wait_timeout: float | timedelta | None, *, tied: bool
    ) -> Result:
        """Add a job with `add`, and return its result. With `tied` the job is revoked if its caller leaves."""
        seconds = optional_seconds("wait_timeout", wait_timeout)
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        call = AwaitedAdd(self._client.results, add, deadline=deadline, tied=tied)
        try:
            async with asyncio.timeout_at(deadline):
                if self._client.state is None or self._closed:
                    await self.connect()
                job, ended = await call.run(job_id)
        except TimeoutError:
            if (found := call.arrived()) is None:
                raise self._no_result(name, seconds, is_revoked=tied) from None
            job, ended = found
        return cast("Result", result_of(job, ended))

    def _no_result(self, name: str, seconds: float | None, *, is_revoked: bool) -> ResultTimeout:
        rest = "is revoked; pass revoke_if_abandoned=False to let it continue" if is_revoked else "continues"
        return ResultTimeout(
            f"job {name!r} in queue {self.name!r} did not end within {seconds} s; check that a worker is running "
            f"and that the queue is not paused. If the job was stored, it {rest}"
        )

    # This path runs for every job of a producer, so everything that can be decided once is decided in `__init__`: the
    # form with or without instrumentation, and the kind of ids. The payload is encoded before the first await, so a bad
    # value is refused before anything is sent, and a later change of the caller's object has no effect.
    #
    # The mode that `fits` compares is the one that this client knows. It may be outdated, so the server checks it
    # again, and `refuse_key` reads it again before it refuses a job here.
    #
    # The notice comes first, so that the server and the worker wake up while this process prepares the add. Callers
    # that share calls give none. Their connection is not silent, and looking for that would cost a tenth of each add.
    async def _add(self, name: str, data: Data, options: JobOptions, reply: AwaitedReply | None) -> Job[Data, Result]:
        functions = self._client.functions
        if functions.grouped_adds.has_pushed and (adder := self._adders.get(options.durability)) and adder.is_free:
            functions.notices.give()
        request = self._request(name, data, options, None if reply is None else reply.to)
        if self._client.state is None or self._closed:
            await self.connect()
        if not self._client.fits(options.key):
            await self._client.refuse_key(options.key)
        adder = self._adder(options)
        added = await (adder.add(request) if reply is None else adder.add_apart(request, reply.sent))
        if added.outcomes:
            return await self._job(request, added.ids[0], added.outcomes.get(0, "added"), added.now, options)
        job: Job[Data, Result] = job_of_add(self._client, request, added.ids[0], added.now)
        if options is not _NO_OPTIONS:
            note_options(job, options, added.now, held=False)
        return job

    async def _add_instrumented(
        self, name: str, data: Data, options: JobOptions, reply: AwaitedReply | None
    ) -> Job[Data, Result]:
        addition = Addition(self.name, name, options.headers)
        with self._instruments.adding([addition]):
            job = await self._add(name, data, with_added_headers(options, addition), reply)
            addition.id, addition.outcome, addition.size = job.id, job.outcome, job.data_size
        return job

    def _adder(self, options: JobOptions) -> Adder:
        wait: Wait = options.durability
        adder = self._adders.get(wait)
        if adder is None:
            adder = self._adders[wait] = Adder(self._client, wait)
        return adder

    def _request(self, name: str, data: Data, options: JobOptions, reply: ReplyTo | None) -> AddRequest:
        # Anything but a plain str goes to the check: a list cannot be looked up in a set, and an instance of a subclass
        # may equal a checked name and contain something else.
        if type(name) is not str or name not in self._checked_names:
            self._check_name(name)
        if options is _NO_OPTIONS and reply is None:
            # Calling the class costs twice as much as its __new__.
            return _new_request(AddRequest, ("", name, self._client.encode(data, "data", name), b"", b""))
        packed = self._client.encode(data, "data", name, options.job_id or "")
        return AddRequest(options.job_id or "", name, packed, stored_form(options), pack_extra(options, reply))

    def _check_name(self, name: str) -> None:
        check_id("job name", name)
        # Most queues have a few names. If a program makes up names, the set must not grow for ever.
        if len(self._checked_names) >= MAX_CHECKED_NAMES:
            self._checked_names.clear()
        self._checked_names.add(name)

    def _named_request(self, name: str, data: Data, options: JobOptions, reply: ReplyTo | None) -> AddRequest:
        request = Queue._request(self, name, data, options, reply)
        return request if request.id or self._new_id is None else request._replace(id=self._new_id())

    async def _job(
        self, request: AddRequest, job_id: str, outcome: str, now: int, options: JobOptions
    ) -> Job[Data, Result]:
        if outcome in STORED:
            job = job_of_add(self._client, request, job_id, now)
            if options is not _NO_OPTIONS:
                note_options(job, options, now, held=outcome == "held")
            return job
        # The record may be missing: a throttle outlives its job, and a job can be removed between the two calls.
        job = await self.get_job(job_id) or job_of_gone(self._client, job_id)
        job.outcome = cast("Outcome", outcome)
        return job

    # -- pause and check ------------------------------------------------------------------------------------------

    async def pause(self, *, until: datetime | None = None) -> None:
        """Stop claims: no worker starts another job of the queue, until `resume`, or until an instant.

        Everything else continues: running jobs end, jobs and job schedulers add jobs, and delayed jobs and retries
        become `waiting` when they are due. Raises TypeError or ValueError for a bad `until`.
        """
        await self.connect()
        await self._client.functions.queue.set_paused(True, 0 if until is None else instant_to_ms("until", until))

    async def resume(self) -> None:
        """End a pause. Idle workers start immediately."""
        await self.connect()
        await self._client.functions.queue.set_paused(False)

    async def is_paused(self) -> bool:
        """Return whether the queue is paused."""
        await self.connect()
        return await self._client.functions.reading.is_paused()

    async def check(self) -> list[Finding]:
        """Verify the integrity of every stored structure and record. Return the faults; [] means none.

        Reads in bounded steps and changes nothing. Each fault is confirmed by a second read, so the queue can be in
        use. docs/internals/stored-data.md lists the invariants.
        """
        await self.connect()
        return await check_queue(self._client)


class SyncQueue(SyncParts[Data, Result]):
    """`queue.sync`: the blocking methods of a queue for code without an event loop.

    Parameters, results and errors are the same as in Queue. As a context manager it connects and closes the
    queue. The jobs that it returns are the same too: `job.sync.result()` waits for a result. It works in any thread and
    in forked children.
    """

    add = blocking(Queue[Data, Result].add)
    add_bulk = blocking(Queue[Data, Result].add_bulk)
    add_and_wait = blocking(Queue[Data, Result].add_and_wait)
    pause = blocking(Queue[Data, Result].pause)
    resume = blocking(Queue[Data, Result].resume)
    is_paused = blocking(Queue[Data, Result].is_paused)
    check = blocking(Queue[Data, Result].check)
    connect = blocking(Queue[Data, Result].connect)
    close = blocking(Queue[Data, Result].close)
