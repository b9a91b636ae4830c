"""The methods of a job as returned by `add` or `get_job`, or passed to a handler.

fields.py has the fields of a job, and snapshot.py creates and updates jobs. The worker runs them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import Any, Final, Generic, NoReturn, TypeVar, cast, overload

from glidemq_async._internal.blocking import Blocking, blocking
from glidemq_async._internal.forgotten_calls import noted
from glidemq_async._internal.generics import Data, Result
from glidemq_async.client.ended import Ended
from glidemq_async.client.outbox import reach_descendants
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.durations import to_ms
from glidemq_async.errors import GlideMQError, JobStateError, ResultTimeout, SerializationError, WaitingForChildren
from glidemq_async.jobs.children import Dependencies, dependencies_of, read_children, values_of_children
from glidemq_async.jobs.chunks import StreamItem, read_chunks
from glidemq_async.jobs.fields import NOT_ACTIVE, UNREAD
from glidemq_async.jobs.journal import FORKED_FROM, Journal, check_step
from glidemq_async.jobs.recorded_steps import RecordedStep, read_stored
from glidemq_async.jobs.reply_codes import WAITING_FOR, check_reply, not_found
from glidemq_async.jobs.signals import SignalMethods
from glidemq_async.jobs.step_recorder import StepCall
from glidemq_async.jobs.watching import JobUpdate, watch_job
from glidemq_async.options.validation import optional_seconds
from glidemq_async.options.validation import priority as check_priority
from glidemq_async.options.validation import reason as check_reason
from glidemq_async.stored.call import changed_call, is_call
from glidemq_async.stored.failure import stored_failure
from glidemq_async.stored.flow import JobRef
from glidemq_async.stored.record import State

Value = TypeVar("Value")
_NOT_RUN_HERE: Final = ("not run by this object", "call this in the handler, with the job that it got")


class Job(SignalMethods[Data, Result]):
    """One job of a queue.

    The fields are a snapshot of the time when the job was read; `refresh()` reads them again. Payloads are decoded on
    first access. Inside a handler, `log`, `update_progress` and `update_data` carry the fencing token of the run: if
    another claim has taken over the job, they raise LeaseLost and change nothing.

    An add can be a duplicate of a job whose record has been removed (`gone`). Its id is known; all other fields and
    all methods raise JobNotFound.
    """

    __slots__ = ()

    @property
    def sync(self) -> SyncJob[Data, Result]:
        """The blocking methods of a job, for code without an event loop, such as a handler of the thread executor."""
        return SyncJob(self, self._client.home)

    def _check_reply(self, code: str, asked: str) -> None:
        check_reply(code, asked, self.id)

    @noted
    async def log(self, line: str) -> None:
        """Append one line to the job's log, which keeps the last 1,000 lines.

        In a handler the worker's JobBudget applies: long lines are cut, and lines beyond the rate wait. Raises
        LeaseLost, JobNotFound, TypeError unless the line is a str, and PayloadTooLarge.
        """
        self._client.check_text(line, "log line")
        if (meter := self._metered()) is not None:
            line = await meter.line(line)
        self._check_reply(
            await self._client.functions.updates.write(self.id, self._entry, "log", line), "write to the log of"
        )

    @noted
    async def update_progress(self, progress: object) -> None:
        """Store the progress of the run: a number, or any payload.

        In a handler the worker's JobBudget applies: if updates come too fast, only the latest value is stored. Raises
        LeaseLost, JobNotFound, SerializationError.
        """
        packed = self._client.encode(progress, "progress", self.name, self.id)
        if (meter := self._metered()) is not None:
            await meter.progress(packed, self._write_progress)
        else:
            await self._write_progress(packed)
        self._progress = packed

    async def _write_progress(self, packed: bytes) -> None:
        # The entry is the fencing token. Outside of a handler it is empty, and the server accepts the write in any
        # state of the job.
        code = await self._client.functions.updates.write(self.id, self._entry, "progress", packed)
        self._check_reply(code, "update the progress of")

    @noted
    async def update_data(self, data: Data) -> None:
        """Replace the payload for later runs.

        Of a task, name the arguments that change, for example `{"to": "ada@x"}`; the others stay. Raises LeaseLost,
        JobNotFound, SerializationError.
        """
        data = await self._with_arguments(data)
        packed = self._client.encode_data(data, self.name, self.id, self.dead_letter)
        if (meter := self._metered()) is not None:
            await meter.data(len(packed))
        code = await self._client.functions.updates.write(self.id, self._entry, "data", packed)
        self._check_reply(code, "update the data of")
        # Decoded again at the next access, so that the handler sees what a later run will see, for example a list
        # instead of a tuple.
        self._data_bytes, self._data = packed, UNREAD

    async def _with_arguments(self, data: Data) -> Data:
        """Return the stored call of a task with other arguments. Other data are returned unchanged."""
        given: object = data
        if not isinstance(given, Mapping) or is_call(cast("object", given)):
            return data
        try:
            stored = self.data
        except SerializationError:  # sealed or damaged: it is replaced as a whole
            return data
        if not is_call(stored):
            return data
        tasks = await self._client.functions.known_tasks.list()
        return cast("Data", changed_call(stored, cast("object", given), tasks.get(self.name)))

    @noted
    async def stream(self, chunk: object) -> None:
        """Append a chunk to the stream of the running job, which `chunks` reads. Returns when it is stored.

        Only a handler can stream. Chunks that the runs of a worker stream at the same time share a call. The worker's
        StreamLimits and JobBudget apply. Raises LeaseLost, JobNotFound, SerializationError, QueueFull, and
        JobStateError outside of a handler.
        """
        packed = self._client.encode(chunk, "chunk", "", self.id)
        if (meter := self._metered()) is not None:
            await meter.chunk(len(packed))
        self._check_reply(await self._client.stream(self.id, self._entry, packed), "stream from")

    @overload
    async def step(
        self,
        name: str,
        function: Callable[..., Coroutine[Any, Any, Value]],
        /,
        *args: Any,
        key: str | None = None,
        **kwargs: Any,
    ) -> Value: ...
    @overload
    async def step(
        self, name: str, function: Callable[..., Value], /, *args: Any, key: str | None = None, **kwargs: Any
    ) -> Value: ...

    @noted
    async def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, key: str | None = None, **kwargs: Any
    ) -> Any:
        """Call a function once for this job, and record its result. Later runs of the job return the recorded result.

        A step is identified by its name, its arguments, and the number of equal calls before it, so the order of
        concurrent steps does not matter. `key` identifies it instead of the arguments. A plain function runs in a
        thread. A failed or cancelled step is not recorded. Steps that the runs of a worker record at the same time
        share a call. The result is returned in its stored form, for example as a list instead of a tuple.

        Only a handler can run steps. Raises the exceptions of the function, LeaseLost, JobNotFound, JournalFull,
        SerializationError, PayloadTooLarge, QueueFull, and JobStateError outside of a handler.
        """
        check_step(name, key)
        call = StepCall(name, [list(args), dict(sorted(kwargs.items()))], key)
        return await journal_of(self).call(call, partial(called, function, *args, **kwargs))

    async def get_steps(self) -> list[RecordedStep]:
        """Return the recorded steps of the job, in the order in which they ended.

        They are kept for as long as the job, but for at most a day after it has completed, or a minute if they have
        more than 1 MiB. Raises SerializationError.
        """
        kept = await self._client.read_steps(self.id)
        return read_stored(self._client, self.id, kept.steps.items())

    async def chunks(self, after: str | None = None) -> AsyncGenerator[StreamItem]:
        """Iterate over the chunks that the runs of the job stream, from the first one or after a position.

        Each position is delivered once. Any number of readers may come at any time until the stream is forgotten, and
        all readers of a client share one connection. The iteration ends when the job has completed. Besides each Chunk
        it yields Restarted when the chunks of another run follow, and ChunkGap for chunks that were trimmed.

        Raises JobFailed when the job has failed, JobNotFound when it was removed, StreamForgotten, SerializationError,
        StorageUnavailable, QueueClosed, and ValueError for a bad `after`.
        """
        async with aclosing(read_chunks(self._client, self.id, after)) as items:
            async for item in items:
                yield item

    async def watch(self) -> AsyncGenerator[JobUpdate]:
        """Iterate over the state, the progress and the log of the job, from now until its end.

        The first update comes immediately and has all kept log lines, the last one has a final state. Changes that
        come faster than the loop reads them are combined into one update, and no log line is left out. All watchers of
        a client share one connection. Raises JobNotFound if the job is removed, StorageUnavailable, QueueClosed.
        """
        async with aclosing(watch_job(self._client, self.id)) as updates:
            async for update in updates:
                yield update

    def _open_journal(self) -> Journal:
        if self._journal is None:
            if not self._entry:
                raise JobStateError(
                    f"run a step of job {self.id}", "not running here", "call job.step() in its handler"
                )
            origin = self.headers.get(FORKED_FROM)
            self._journal = Journal(self._client, self.id, self._entry, self.fence, origin)
        return self._journal

    @noted
    async def heartbeat(self) -> None:
        """Report that the run is alive.

        Only needed for executors that end silent runs (`heartbeat_timeout` of SubprocessExecutor).
        """
        await self._client.heartbeat(self.id)

    async def result(self, timeout: float | timedelta | None = None) -> Result:
        """Wait until the job has ended, and return its result.

        Raises JobFailed if the job failed, ResultTimeout after `timeout` seconds (the job continues), and JobNotFound
        if its record has been removed.
        """
        seconds = optional_seconds("timeout", timeout)
        try:
            async with asyncio.timeout(seconds):
                results = self._client.results
                # The subscription comes before the look at the record. If the job ends between the two, the look finds
                # it.
                await results.listen()
                ended = await results.wait(self.id, results.watch(self.id, asked=False), asked=False)
        except TimeoutError:
            raise ResultTimeout(
                f"job {self.id} of queue {self.queue!r} did not end within {seconds} s: {await self._why()}. "
                "The job continues and its result can be awaited again"
            ) from None
        return self._outcome_of(ended)

    async def _why(self) -> str:
        """Return why the job has no result yet, for an error message. Never raises; takes at most one second."""
        try:
            async with asyncio.timeout(1.0):
                state = await self.get_state()
                paused = state == "waiting" and await self._client.functions.reading.is_paused()
        except (TimeoutError, GlideMQError) as error:
            return f"its state cannot be read ({error!r})"
        if paused:
            return "it is waiting because the queue is paused; call resume()"
        return WAITING_FOR.get(state, f"it is {state}")

    def _outcome_of(self, ended: Ended) -> Result:
        """Return the result of an ended job, or raise JobFailed."""
        if ended.state == "failed":
            error = stored_failure(ended.payload, ended.reason)
            # The text is the one of the handler's exception, which does not name the job. A traceback shows the note.
            error.add_note(f"job {self.id} ({self.name}) of queue {self.queue!r}")
            raise error
        return self._result_of(ended.payload)

    async def get_children_values(self) -> dict[JobRef, Any]:
        """Return the results of the job's children in their order, by queue and id.

        Contains each child that has completed. A failed child with the policy "collect" is a JobFailed. Raises
        JobNotFound if the last job of the flow ended more than a day ago, and SerializationError.
        """
        return values_of_children(self._client, await read_children(self._client, self.id, self._flow()))

    async def get_dependencies(self) -> Dependencies:
        """Return the job's children by how they ended. Raises JobNotFound like `get_children_values`."""
        return dependencies_of(await read_children(self._client, self.id, self._flow()))

    async def move_to_waiting_children(self) -> NoReturn:
        """End the run, and run the job again when the children that `FlowProducer.add_children` gave it have ended.

        The run gives up its slot and its claim, and no attempt is counted. Until the next run the state is
        `waiting-children`. If all of the children have ended, the next run follows immediately. If a child fails whose
        policy is "fail" or "wait", the job fails instead.

        Raises WaitingForChildren, which the handler must not catch, and JobStateError outside of a handler.
        """
        if self._entry == NOT_ACTIVE:
            raise JobStateError(f"let job {self.id} wait for its children", *_NOT_RUN_HERE)
        raise WaitingForChildren

    async def refresh(self) -> None:
        """Read the job again. Raises JobNotFound."""
        record = (await self._client.functions.reading.get_records([self.id]))[0]
        if b"place" not in record:
            raise not_found("refresh", self.id)
        self.name = record.get(b"name", b"").decode(errors="replace")
        self._read(record)

    async def get_state(self) -> State:
        """Return the current state. Raises JobNotFound."""
        await self.refresh()
        return self.state

    async def remove(self) -> None:
        """Delete the job and its data. A running job is stopped, and its outcome is refused.

        A running job occupies its ordering key, and counts towards the queue's concurrency limit, until its handler has
        ended or its lease expires. The jobs of a flow below this one are cancelled as by `revoke`. Raises JobNotFound.
        """
        ending = await self._client.functions.jobs.remove(self.id)
        self._check_reply(ending.code, "remove")
        await reach_descendants(self._client, ending.rest)

    async def retry(self) -> None:
        """Run a completed or failed job again, with fresh attempts. Raises JobStateError, JobNotFound."""
        self._check_reply(await self._client.functions.jobs.retry(self.id), "retry")

    async def promote(self) -> None:
        """Make a delayed job ready now. Raises JobStateError, JobNotFound."""
        self._check_reply(await self._client.functions.jobs.promote(self.id), "promote")

    async def update_result_ttl(self, ttl: float | timedelta | None) -> None:
        """Keep the record and the result of this ended job for exactly `ttl` seconds from now.

        With None the retention of the queue applies again. It counts from the job's end, so the record may be removed
        immediately. Raises JobStateError if the job has not ended, JobNotFound, and TypeError or ValueError for a bad
        `ttl`.
        """
        ttl_ms = None if ttl is None else to_ms("ttl", ttl, allow_zero=False)
        code = await self._client.functions.result_ttl.set(self.id, ttl_ms)
        self._check_reply(code, "change the result ttl of")

    async def change_priority(self, priority: int) -> None:
        """Change the priority of a job that has not started. It goes behind the jobs that already have this priority.

        A job with a key moves only within its key. A delayed job uses the new priority when it is due. Raises
        JobStateError, JobNotFound, and TypeError or ValueError for a bad priority.
        """
        number = check_priority("priority", priority)
        self._check_reply(await self._client.functions.changes.set_priority(self.id, number), "change the priority of")
        self._route, self._options = self._route._replace(priority=number, lifo=self._route.lifo and not number), None

    async def change_delay(self, delay: float | timedelta) -> None:
        """Delay a job that has not started by `delay` seconds from now; 0 makes it ready immediately.

        Raises JobStateError, JobNotFound, and TypeError or ValueError for a bad delay.
        """
        self._check_reply(
            await self._client.functions.changes.set_delay(self.id, to_ms("delay", delay)), "change the delay of"
        )

    async def revoke(self, reason: str | None = None) -> bool:
        """Ensure that the job does not complete: it fails with the reason "revoked".

        With a `reason` (one line of at most 500 characters) the failed reason is "revoked: <reason>" in the record, in
        the event, and in the JobFailed of callers that wait for the result.

        The worker cancels a running job. If the handler returns a result before that, the job completes. Return True if
        the job has failed now, False if a worker still has to stop it.

        The jobs of a flow below this one are cancelled too, depth first and in all queues, unless another parent needs
        them. When this returns, none of them starts any more. If a queue cannot be reached, its error is raised, and
        the workers of this queue cancel the rest later.

        Raises JobStateError, JobNotFound, and TypeError or ValueError for a bad reason.
        """
        ending = await self._client.functions.jobs.revoke(self.id, check_reason("reason", reason))
        if ending.code not in {"revoked", "revoking"}:
            self._check_reply(ending.code, "revoke")
        await reach_descendants(self._client, ending.rest)
        return ending.code == "revoked"


def journal_of(job: Job[Any, Any]) -> Journal:
    """Return the journal of a run. Raises JobStateError outside of a run."""
    return job._open_journal()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def called(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call the function of a step, a plain one in a thread."""
    if is_coroutine_function(function):
        return await cast("Coroutine[Any, Any, Any]", function(*args, **kwargs))
    value = await asyncio.to_thread(function, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Return whether a call of the function, method or callable object returns a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def run_of(job: Job[Any, Any]) -> tuple[QueueClient, str]:
    """Return the connection and the fencing token of the run that has this job, for flows. Raises JobStateError."""
    entry = job._entry  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if entry == NOT_ACTIVE:
        raise JobStateError(f"add children to job {job.id}", *_NOT_RUN_HERE)
    return job._client, entry  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class SyncJob(Blocking[Job[Data, Result]], Generic[Data, Result]):
    """`job.sync`: the blocking methods of a job for code without an event loop.

    Parameters, results and errors are the same as in Job. In a handler of the thread executor,
    `job.sync.log(...)` and the other methods use the worker's event loop.
    """

    log = blocking(Job[Data, Result].log)
    update_progress = blocking(Job[Data, Result].update_progress)
    update_data = blocking(Job[Data, Result].update_data)
    stream = blocking(Job[Data, Result].stream)
    suspend = blocking(Job[Data, Result].suspend)
    move_to_delayed = blocking(Job[Data, Result].move_to_delayed)
    signal = blocking(Job[Data, Result].signal)
    send = blocking(Job[Data, Result].send)
    send_and_wait = blocking(Job[Data, Result].send_and_wait)
    resume = blocking(Job[Data, Result].resume)
    get_steps = blocking(Job[Data, Result].get_steps)
    chunks = blocking(Job[Data, Result].chunks)
    watch = blocking(Job[Data, Result].watch)
    heartbeat = blocking(Job[Data, Result].heartbeat)
    result = blocking(Job[Data, Result].result)

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Coroutine[Any, Any, Value]],
        /,
        *args: Any,
        key: str | None = None,
        **kwargs: Any,
    ) -> Value: ...
    @overload
    def step(
        self, name: str, function: Callable[..., Value], /, *args: Any, key: str | None = None, **kwargs: Any
    ) -> Value: ...

    # Written by hand, because `blocking` keeps only the first of several signatures.
    def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, key: str | None = None, **kwargs: Any
    ) -> Any:
        """Call a function once for this job, and record its result; see `Job.step`."""
        return self._finish(self._owner.step(name, function, *args, key=key, **kwargs))

    get_children_values = blocking(Job[Data, Result].get_children_values)
    get_dependencies = blocking(Job[Data, Result].get_dependencies)
    move_to_waiting_children = blocking(Job[Data, Result].move_to_waiting_children)
    refresh = blocking(Job[Data, Result].refresh)
    get_state = blocking(Job[Data, Result].get_state)
    remove = blocking(Job[Data, Result].remove)
    retry = blocking(Job[Data, Result].retry)
    promote = blocking(Job[Data, Result].promote)
    update_result_ttl = blocking(Job[Data, Result].update_result_ttl)
    change_priority = blocking(Job[Data, Result].change_priority)
    change_delay = blocking(Job[Data, Result].change_delay)
    revoke = blocking(Job[Data, Result].revoke)
