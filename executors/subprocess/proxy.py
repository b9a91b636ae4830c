"""The job's client in a child. It sends the handler's calls of its job to the worker and returns the replies."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, Literal, TypeVar

from typing_extensions import override

from glidemq_async.client.payload_coder import Payloads
from glidemq_async.errors import ExecutorError, LeaseLost, PayloadTooLarge
from glidemq_async.executors.subprocess.frames import Frame
from glidemq_async.executors.subprocess.link import WorkerSocket
from glidemq_async.executors.subprocess.remote_errors import error_from_values
from glidemq_async.functions.steps import StoredJournal
from glidemq_async.jobs.job import Job, SyncJob
from glidemq_async.jobs.journal import Journal
from glidemq_async.options.steps import StepLimits
from glidemq_async.payloads.codecs.chain import PayloadKind

Value = TypeVar("Value")
MAX_COUNT: Final = 2**31 - 1
Call = Literal["log", "progress", "data", "chunk", "journal", "step", "heartbeat"]


class RemoteUpdates:
    """Replaces the calls of `updates.lua`. They go to the worker, which knows the run."""

    def __init__(self, link: WorkerSocket, run: int) -> None:
        self._link = link
        self._run = run
        self._waiting: dict[int, Future[Any]] = {}
        self._last = 0
        self._is_closed = False
        self._sending = threading.Lock()

    async def write(self, job_id: str, entry: str, kind: Call, value: bytes | str) -> str:
        """Ask the worker to write an update or a chunk of the current job. `job_id` and `entry` are ignored."""
        del entry
        answer = self.send(job_id, kind, value)
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a plain function, whose thread may wait
            return str(answer.result())
        return str(await asyncio.wrap_future(answer))

    def send(self, job_id: str, kind: Call, value: object) -> Future[Any]:
        """Send a call of the current job to the worker. The future has its result."""
        answer: Future[Any] = Future()
        # The check and the send are one step. Without the lock, `close` could run between them, and a thread that the
        # run left behind would send a call after the end of the run.
        with self._sending:
            if self._is_closed:
                raise LeaseLost(f"{kind} of job {job_id} was refused: its run has ended in this process")
            self._last += 1
            self._waiting[self._last] = answer
            self._link.send("call", self._run, self._last, kind, value)
        return answer

    def close(self) -> None:
        """Refuse further calls. Threads that the run left behind must not write to the next job."""
        with self._sending:
            self._is_closed = True

    def answered(self, frame: Frame) -> None:
        """Receive the worker's reply to a call. Called by the thread that reads."""
        _, number, error, result = frame
        waiting = self._waiting.pop(number, None)
        if waiting is None or not waiting.set_running_or_notify_cancel():
            return
        if error is None:
            waiting.set_result(result)
        else:
            waiting.set_exception(error_from_values(error))


class RemoteFunctions:
    """Replaces the calls to the store. Calls that a run needs go to the worker; other calls raise an error."""

    def __init__(self, updates: RemoteUpdates) -> None:
        self.updates = updates

    def __getattr__(self, _: str) -> Any:
        raise ExecutorError(
            "this call is not available in the process of a job, which has no connection to the store; only log, "
            "update_progress, update_data, stream, step and heartbeat work there. Open a Queue in the handler for "
            "other calls"
        )


class ChildClient:
    """Replaces a job's QueueClient."""

    budget: Final = None
    """None, because the worker enforces the budget of the run."""
    step_limits: Final = StepLimits(max_steps=MAX_COUNT, max_bytes=MAX_COUNT)
    """No limits, because the worker and the server enforce the limits."""

    def __init__(self, link: WorkerSocket, run: int, queue: str, payload_limit: int) -> None:
        self.functions = RemoteFunctions(RemoteUpdates(link, run))
        self.queue = queue
        # Only the worker uses the serializer and codecs of the queue. Here every payload is plain msgpack.
        self.payloads = Payloads("", None, (), payload_limit)

    @property
    def results(self) -> object:
        """Raise ExecutorError: results come from the store, which a child cannot reach."""
        return self.functions.results

    def encode(self, value: object, kind: PayloadKind, name: str, job_id: str) -> bytes:
        """Encode a value. Raises SerializationError or PayloadTooLarge."""
        return self.payloads.encode(value, kind, name, job_id)

    def encode_data(self, value: object, name: str, job_id: str, origin: object) -> bytes:
        """Encode new data of the job. Raises SerializationError or PayloadTooLarge."""
        del origin
        return self.payloads.encode(value, "data", name, job_id)

    def decode(self, data: bytes, kind: PayloadKind, name: str, job_id: str) -> object:
        """Decode a value. Raises SerializationError."""
        return self.payloads.decode(data, kind, name, job_id)

    def decode_data(self, data: bytes, name: str, job_id: str, origin: object) -> object:
        """Decode the data of the job. Raises SerializationError."""
        del origin
        return self.payloads.decode(data, "data", name, job_id)

    def check_text(self, text: str, what: str) -> None:
        """Check that a value is a str within the size limit. Raises TypeError or PayloadTooLarge."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a {what} must be a str, not {text!r}")
        if len(text) > self.payloads.limit:
            raise PayloadTooLarge(what, len(text), self.payloads.limit)

    @property
    def tail(self) -> object:
        """Raise ExecutorError: chunks and updates come from the store, which a child cannot reach."""
        return self.functions.tail

    async def stream(self, job_id: str, entry: str, packed: bytes) -> str:
        """Ask the worker to append a chunk to the stream of the job. Return the status."""
        return await self.functions.updates.write(job_id, entry, "chunk", packed)

    async def read_steps(self, job_id: str) -> StoredJournal:
        """Ask the worker for the journal of the job. Its steps are encoded for this client."""
        found: dict[str, bytes]
        found, requeued = await asyncio.wrap_future(self.functions.updates.send(job_id, "journal", None))
        return StoredJournal(found, requeued)

    def record_step(self, job_id: str, entry: str, identity: str, packed: bytes) -> asyncio.Future[str]:
        """Ask the worker to record a step of the job. The future has the status."""
        del entry
        return asyncio.wrap_future(self.functions.updates.send(job_id, "step", (identity, packed)))

    async def heartbeat(self, job_id: str) -> None:
        """Report to the worker that the run is alive."""
        await self.functions.updates.write(job_id, "", "heartbeat", b"")


class ChildJob(Job[Any, Any]):
    """A job in its child process. Its `sync` needs no event loop, because the reading thread receives the replies."""

    @property
    @override
    def sync(self) -> SyncJob[Any, Any]:
        """The blocking methods of the job."""
        return ChildSyncJob(self)

    @override
    def _open_journal(self) -> Journal:
        """Return the journal of the run. Raises ExecutorError in a plain function, which has no event loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ExecutorError(
                "job.sync.step is not available in a plain function in the process of a job, which has no event loop; "
                "make the handler a coroutine function and await job.step, or use the thread executor"
            ) from None
        return super()._open_journal()


class ChildSyncJob(SyncJob[Any, Any]):
    """`job.sync` in a child: the calling thread waits for the worker's reply."""

    def __init__(self, owner: ChildJob) -> None:
        # Without a home: a portal would start a thread, which the permissions of the process may forbid.
        self._owner = owner

    @override
    def _finish(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Run one of the calls above to its end. Without a running loop, the call blocks its thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            work.close()
            raise RuntimeError("job.sync blocks and cannot be used in a coroutine; await the method of the job itself")
        try:
            work.send(None)
        except StopIteration as done:
            result: Value = done.value
            return result
        raise RuntimeError("a call of the job waits for something other than the worker")
