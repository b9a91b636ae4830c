"""The job's client in a child: what a handler asks of its job goes to the worker, over the channel, and comes back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, Literal, TypeVar

from glidemq_async.client.payload_coder import Payloads
from glidemq_async.errors import ExecutorError, LeaseLost, PayloadTooLarge
from glidemq_async.executors.subprocess.frames import Frame
from glidemq_async.executors.subprocess.link import Link
from glidemq_async.executors.subprocess.remote_errors import rebuilt
from glidemq_async.payloads.codecs.chain import PayloadKind

Value = TypeVar("Value")
Call = Literal["log", "progress", "data", "heartbeat"]


class RemoteFunctions:
    """Stands where the functions of the store do: those that a run needs are passed on, no other can be called."""

    def __init__(self, link: Link, run: int) -> None:
        self._link = link
        self._run = run
        self._waiting: dict[int, Future[str]] = {}
        self._last = 0
        self._is_closed = False
        self._sending = threading.Lock()

    async def update_job(self, job_id: str, entry: str, kind: Call, value: bytes | str) -> str:
        """Let the worker write progress, data or a log line of the job in hand, whatever it is called here."""
        del entry
        answer: Future[str] = Future()
        with self._sending:
            if self._is_closed:
                raise LeaseLost(f"asked for {kind} of job {job_id}, found its run ended in this process")
            self._last += 1
            self._waiting[self._last] = answer
            self._link.send("call", self._run, self._last, kind, value)
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a plain function: its thread may wait
            return answer.result()
        return await asyncio.wrap_future(answer)

    def close(self) -> None:
        """The run has ended: what it left behind asks for nothing more, which the next one would be given."""
        with self._sending:
            self._is_closed = True

    def answered(self, frame: Frame) -> None:
        """Take the worker's answer to a call. Called by the thread that reads."""
        _, number, error = frame
        waiting = self._waiting.pop(number, None)
        if waiting is None or not waiting.set_running_or_notify_cancel():
            return
        if error is None:
            waiting.set_result("ok")
        else:
            waiting.set_exception(rebuilt(error))

    def __getattr__(self, name: str) -> Any:
        raise ExecutorError(
            f"asked for {name} in the process of a job, which has no connection to the store: only log, "
            "update_progress, update_data and heartbeat are passed on. Open a Queue in the handler for more"
        )


class ChildClient:
    """Stands where a job's QueueClient does."""

    budget: Final = None
    """The worker holds the run to its budget."""

    def __init__(self, link: Link, run: int, queue: str, payload_limit: int) -> None:
        self.functions = RemoteFunctions(link, run)
        self.queue = queue
        # Serializer and codecs of the queue are the worker's affair: here everything is plain msgpack.
        self.payloads = Payloads("", None, (), payload_limit)

    @property
    def results(self) -> object:
        """Results come from the store, which cannot be asked."""
        return self.functions.results

    def encode(self, value: object, kind: PayloadKind, name: str, job_id: str) -> bytes:
        """Turn a value into bytes; raises SerializationError or PayloadTooLarge."""
        return self.payloads.encode(value, kind, name, job_id)

    def encode_data(self, value: object, name: str, job_id: str, letter: object) -> bytes:
        """Turn new data of the job into bytes; raises SerializationError or PayloadTooLarge."""
        del letter
        return self.payloads.encode(value, "data", name, job_id)

    def decode(self, data: bytes, kind: PayloadKind, name: str, job_id: str) -> object:
        """Turn bytes into the value; raises SerializationError."""
        return self.payloads.decode(data, kind, name, job_id)

    def decode_data(self, data: bytes, name: str, job_id: str, letter: object) -> object:
        """Turn the job's data into their value; raises SerializationError."""
        del letter
        return self.payloads.decode(data, "data", name, job_id)

    def check_text(self, text: str, what: str) -> None:
        """Refuse what is no text, or too large."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a {what} must be a str, not {text!r}")
        if len(text) > self.payloads.limit:
            raise PayloadTooLarge(what, len(text), self.payloads.limit)

    async def heartbeat(self, job_id: str) -> None:
        """Tell the worker that the run is alive."""
        await self.functions.update_job(job_id, "", "heartbeat", b"")

    def blocking(self, owner: object) -> Blocking:
        """Return the job's methods as calls that wait."""
        return Blocking(owner)


class Blocking:
    """`job.sync` in a child: what the worker answers is waited for in the thread that asks."""

    def __init__(self, owner: object) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._finish(method(*args, **kwargs))

        return call

    def _finish(self, call: Coroutine[Any, Any, Value]) -> Value:
        """Run one of the calls above to its end; it waits by itself where no loop runs."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            call.close()
            raise RuntimeError("asked for a call that waits in a coroutine: await the method of the job itself")
        try:
            call.send(None)
        except StopIteration as done:
            result: Value = done.value
            return result
        raise RuntimeError("a call of the job waits for something else than the worker")
