"""Executes the steps of one run, and records them in the journal of its job.

functions/journals.lua describes how journals are stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgpack

from glidemq_async.client.payload_coder import Payloads
from glidemq_async.errors import ControlFlow, JournalFull, LeaseLost, SerializationError, WorkflowDiverged
from glidemq_async.functions.signals import BufferedSignal
from glidemq_async.functions.steps import StoredJournal
from glidemq_async.instrumentation import running_step
from glidemq_async.jobs.recorded_steps import COMPLETED, FAILED, VERSION, StepCoder, StoredStep, now_ms
from glidemq_async.jobs.reply_codes import check_reply
from glidemq_async.options.steps import StepLimits
from glidemq_async.stored.failure import failure_of

_SHOWN_BYTES: Final = 4096
"""Arguments up to this size are stored with their step, so that they can be shown."""

_executing: Final[ContextVar[str]] = ContextVar("glidemq_executing_step", default="")


class StepStore(StepCoder, Protocol):
    """The part of a client that a journal needs."""

    payloads: Payloads

    @property
    def step_limits(self) -> StepLimits:
        """The limits of the journal of each job."""
        ...

    async def read_steps(self, job_id: str) -> StoredJournal:
        """Read the journal of a job."""
        ...

    def record_step(
        self, job_id: str, entry: str, identity: str, packed: bytes, signal: bytes = b""
    ) -> asyncio.Future[str]:
        """Record a step of a run. The future has the status. The step takes a `signal` out of the mailbox."""
        ...

    async def read_mailbox(self, job_id: str) -> list[BufferedSignal]:
        """Return the signals that a job has not received yet."""
        ...


Failures: TypeAlias = type[Exception] | tuple[()]
"""The exceptions of a step that are recorded, () for none."""


class StepCall(NamedTuple):
    """A call of a step. A `key` replaces the arguments as the identity. `code` is the fingerprint of the caller."""

    name: str
    arguments: object = ()
    key: str | None = None
    code: str = ""


class Received(NamedTuple):
    """The result of a step that takes a signal out of the mailbox: what is recorded, and the signal as it is stored."""

    result: object
    signal: bytes


class HandedOver(NamedTuple):
    """The result of a step that receives a signal from the resume of its job."""

    result: object


class FoundStep(NamedTuple):
    """A recorded step, and its exception if it has failed in this run."""

    step: StoredStep
    error: Exception | None = None


class _Executed(NamedTuple):
    """A step that was executed: its times in ms, its arguments to show, what the function returned, and its failure."""

    began: float
    ended: float
    shown: object
    source: object
    error: Exception | None


class _Unconfirmed(NamedTuple):
    """A step whose record has no reply yet. `running` is done when the recorder knows the reply."""

    name: str
    status: asyncio.Future[str]
    running: asyncio.Future[None]


class SignalGone(Exception):
    """A signal is not in the mailbox any more, because another step of the run has received it or it has expired."""


# A step that receives a signal from the resume is recorded too, but its run does not wait for the reply. If the record
# is lost, a later run finds the signal all the same, because the job keeps it until it is suspended again or ends. In
# that run another wait may receive the signal. So no other step executes, and no run ends, before the record is
# confirmed.
class StepRecorder:
    """Executes steps of one job for its present run, and records them. It calls `note_recorded` for each record."""

    def __init__(
        self, store: StepStore, job_id: str, entry: str, run: int, note_recorded: Callable[[str, StoredStep], None]
    ) -> None:
        self._store = store
        self._job_id = job_id
        self._note_recorded = note_recorded
        self.entry = entry
        self.run = run
        """The fencing token of the run."""
        self.bytes = 0
        """The size of the journal."""
        self.running: dict[str, asyncio.Future[None]] = {}
        """The steps that execute, or whose record has no reply yet. Each future is done afterwards."""
        self.receiving: list[bytes] = []
        """The signals of steps whose record has no reply yet."""
        self._unconfirmed: list[_Unconfirmed] = []
        """The steps that have received a signal from the resume, and have no record yet."""

    async def execute(
        self, identity: str, call: StepCall, function: Callable[[], Awaitable[object]], recorded_failures: Failures
    ) -> FoundStep | HandedOver:
        """Execute a step and record it. Return it, or a received signal whose record needs no reply.

        Raises the exception of the function, LeaseLost, JournalFull, SerializationError and PayloadTooLarge.
        """
        self.running[identity] = running = asyncio.get_running_loop().create_future()
        is_recorded = False
        try:
            _executing.set(identity)
            if self._unconfirmed:
                await self.confirm()
            executed = await self._executed(call, function, recorded_failures)
            if isinstance(executed.source, HandedOver):
                self._record_later(identity, call, executed, running)
                is_recorded = True
                return executed.source
            step, status = self._record(identity, call, executed, running)
            is_recorded = True
        finally:
            if not is_recorded:
                self._end(identity, running)
        # The step has happened, so a cancellation of the caller must not take its record back.
        self._check(call.name, await asyncio.shield(status))
        return FoundStep(step, executed.error)

    async def confirm(self) -> None:
        """Wait until each signal that a step has received is recorded. Raises the errors of `execute`."""
        while self._unconfirmed:
            step = self._unconfirmed[0]
            await asyncio.wait([step.running])
            self._check(step.name, step.status.result())
            if step in self._unconfirmed:  # another waiter may have been first
                self._unconfirmed.remove(step)

    def lost_receipt(self) -> Exception | None:
        """Return the error of the first receipt of a signal that was refused. Return None if none was refused."""
        for step in self._unconfirmed:
            if step.status.done():
                try:
                    self._check(step.name, step.status.result())
                except Exception as error:  # noqa: BLE001 - the caller raises it
                    return error
        return None

    def _check(self, name: str, code: str) -> None:
        """Raise the error of a step that was not recorded."""
        if code == "gone":
            raise SignalGone
        if code == "full":
            raise JournalFull(self._job_id, name, "the server has refused the step", "max_steps or max_bytes")
        check_reply(code, f"record step {name!r} of", self._job_id)

    async def _executed(
        self, call: StepCall, function: Callable[[], Awaitable[object]], recorded_failures: Failures
    ) -> _Executed:
        began, shown = now_ms(), self._shown(call)
        try:
            with running_step(call.name):
                source = await function()
        except (ControlFlow, LeaseLost, WorkflowDiverged):
            raise
        except Exception as raised:
            if not isinstance(raised, recorded_failures):
                raise
            return _Executed(began, now_ms(), shown, list(failure_of(raised)[:3]), raised)
        return _Executed(began, now_ms(), shown, source, None)

    def _record_later(self, identity: str, call: StepCall, executed: _Executed, running: asyncio.Future[None]) -> None:
        """Record a step that has received a signal from the resume, in the next turn of the loop.

        The workflow continues without waiting for the record. If the record fails, the next step or the end of the run
        raises the error.
        """
        loop = asyncio.get_running_loop()
        status: asyncio.Future[str] = loop.create_future()
        self._unconfirmed.append(_Unconfirmed(call.name, status, running))

        def record() -> None:
            try:
                recording = self._record(identity, call, executed, running)[1]
            except Exception as error:  # noqa: BLE001 - `confirm` raises it
                status.set_exception(error)
                status.exception()  # retrieved, because the run may end without `confirm`
                self._end(identity, running)
            else:
                recording.add_done_callback(partial(_copy_status, status))

        loop.call_soon(record)

    def _record(
        self, identity: str, call: StepCall, executed: _Executed, running: asyncio.Future[None]
    ) -> tuple[StoredStep, asyncio.Future[str]]:
        """Send a step. Return it, and the future of its status. Raises JournalFull and the errors of its encoding."""
        source, error = executed.source, executed.error
        result = source.result if isinstance(source, Received | HandedOver) else source
        body = self._store.encode([executed.shown, result], "step", call.name, self._job_id)
        outcome = COMPLETED if error is None else FAILED
        step = StoredStep(VERSION, outcome, call.name, self.run, executed.began, executed.ended, call.code, body)
        packed: bytes = msgpack.packb(step)
        size, most = len(identity) + len(packed), self._store.step_limits.max_bytes
        if self.bytes + size > most:
            raise JournalFull(self._job_id, call.name, f"it would exceed {most} bytes", "max_bytes")
        status = self._send(identity, packed, source.signal if isinstance(source, Received) else b"")
        self.bytes += size
        status.add_done_callback(partial(self._recorded, identity, step, size, running))
        return step, status

    def _send(self, identity: str, packed: bytes, signal: bytes) -> asyncio.Future[str]:
        if not signal:
            return self._store.record_step(self._job_id, self.entry, identity, packed)
        status = self._store.record_step(self._job_id, self.entry, identity, packed, signal)
        self.receiving.append(signal)
        status.add_done_callback(lambda _: self.receiving.remove(signal))
        return status

    def _shown(self, call: StepCall) -> object:
        """Return the arguments to store for readers, None if they are too large."""
        try:
            size = len(self._store.payloads.serialize(call.arguments))
        except SerializationError:  # only possible with a key
            return None
        return call.arguments if size <= _SHOWN_BYTES else None

    def _recorded(
        self, identity: str, step: StoredStep, size: int, running: asyncio.Future[None], status: asyncio.Future[str]
    ) -> None:
        if not status.cancelled() and status.exception() is None and status.result() == "ok":
            self._note_recorded(identity, step)
        else:
            self.bytes -= size
        self._end(identity, running)

    def _end(self, identity: str, running: asyncio.Future[None]) -> None:
        del self.running[identity]
        running.set_result(None)


def _copy_status(status: asyncio.Future[str], recording: asyncio.Future[str]) -> None:
    if recording.cancelled():
        status.cancel()
    elif (error := recording.exception()) is not None:
        status.set_exception(error)
        status.exception()  # retrieved, as above
    else:
        status.set_result(recording.result())


def executing_step() -> str:
    """Return the identity of the step that last began to execute in this task, "" without one."""
    return _executing.get()
