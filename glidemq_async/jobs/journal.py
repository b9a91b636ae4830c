"""The journal of one run: finds the recorded steps of a job by their calls, and records new ones.

functions/journals.lua describes how journals are stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol, TypeAlias, cast

import msgpack

from glidemq_async.client.payload_coder import Payloads
from glidemq_async.errors import (
    ControlFlow,
    JournalFull,
    LeaseLost,
    SerializationError,
    StepFailed,
    WorkflowDiverged,
)
from glidemq_async.functions.signals import BufferedSignal
from glidemq_async.functions.steps import StoredJournal
from glidemq_async.instrumentation import running_step
from glidemq_async.jobs.call_numbers import Numbers
from glidemq_async.jobs.recorded_steps import (
    COMPLETED,
    FAILED,
    SEPARATOR,
    VERSION,
    RecordedStep,
    StepCoder,
    StoredStep,
    body_of,
    now_ms,
    recorded_steps,
    unpack_step,
)
from glidemq_async.jobs.reply_codes import check_reply
from glidemq_async.options.steps import StepLimits
from glidemq_async.stored.failure import failure_of
from glidemq_async.stored.hand_over import StoredSignal
from glidemq_async.stored.names import check_id

_DIGEST_BYTES: Final = 12
_SHOWN_BYTES: Final = 4096
"""Arguments up to this size are stored with their step, so that they can be shown."""
FORKED_FROM: Final = "forked_from"
"""The header of a fork: the id of the job whose journal it began with. Its digests contain that id."""
ACCEPTED: Final = "workflow.accepted"
"""The name and identity of the step that an operator records to accept the code of a workflow."""


# The step that was last asked for in this task. A new task inherits it with its context.
_last: Final[ContextVar[str]] = ContextVar("glidemq_last_step", default="")
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


class _Executed(NamedTuple):
    """A step that was executed: its times in ms, its arguments to show, what the function returned, and its failure."""

    began: float
    ended: float
    shown: object
    source: object
    error: Exception | None


class _FoundStep(NamedTuple):
    """A recorded step, and its exception if it has failed in this run."""

    step: StoredStep
    error: Exception | None = None


class _Unconfirmed(NamedTuple):
    """A step whose record has no reply yet. `running` is done when the journal knows the reply."""

    name: str
    status: asyncio.Future[str]
    running: asyncio.Future[None]


class SignalGone(Exception):
    """A signal is not in the mailbox any more, because another step of the run has received it or it has expired."""


# A run asks for its steps in any order: tasks of a group run concurrently, and finish at other times in each run. So a
# step has no position. Its identity is its name, a digest of its arguments, and the number of equal calls before it.
# Equal calls are interchangeable, because equal inputs are all that distinguishes them for the program.
#
# The number belongs to a call until the call has received its result. If the call is cancelled or fails, the next equal
# call takes the number. Otherwise a program that repeats a call after a timeout would record its success under the
# number 1, and the next run would execute the call under the number 0 again.
#
# A step that receives a signal from the resume is recorded too, but its run does not wait for the reply. If the record
# is lost, a later run finds the signal all the same, because the job keeps it until it is suspended again or ends. In
# that run another wait may receive the signal. So no other step executes, and no run ends, before the record is
# confirmed.
class Journal:
    """The recorded steps of one job, as its present run uses them."""

    def __init__(self, store: StepStore, job_id: str, entry: str, run: int, origin: str | None = None) -> None:
        self._store = store
        self.job_id = job_id
        self._origin = origin
        # The id makes equal arguments of several jobs look different to a reader of the store.
        self._salt = (origin or job_id).encode() + b"\0"
        self._entry = entry
        self.run = run
        """The fencing token of the run."""
        self.requeued = 0
        """The fencing token of the last run before the job was requeued by hand, 0 if it never was. See `load`."""
        self._is_closed = False
        self.has_refused = False
        """True if the function asked for a step after `close`. It was cancelled, so it cannot continue."""
        self._is_loaded = False
        self._loading = asyncio.Lock()
        self._kept: dict[str, StoredStep] = {}
        self._bytes = 0
        self._accepted = -1
        """The last run whose steps need not be asked for, because an operator has accepted the code; -1 for none."""
        self._numbers = Numbers()
        self._running: dict[str, asyncio.Future[None]] = {}
        """The steps that execute, or whose record has no reply yet. Each future is done afterwards."""
        self._unconfirmed: list[_Unconfirmed] = []
        """The steps that have received a signal from the resume, and have no record yet."""
        self.receiving: list[bytes] = []
        """The signals of steps whose record has no reply yet."""
        self._asked: set[str] = set()
        self._new: list[str] = []
        self._code = ""
        """The fingerprint of the workflow that this run executes, "" for none."""
        self._left: dict[str, set[str]] = {}
        """The steps that workflows with other fingerprints have recorded and this run has not asked for, by name."""

    async def call(
        self, call: StepCall, execute: Callable[[], Awaitable[object]], *, recorded_failures: Failures = ()
    ) -> object:
        """Return the result of a step: the recorded one, or the one of `execute`, which is recorded.

        An exception of these `recorded_failures` is recorded too, and raised as StepFailed in each run. Raises
        the exception of `execute`, LeaseLost, JournalFull, SerializationError and PayloadTooLarge.
        """
        # A function that is suspended may catch its cancellation. It must not record a step then.
        if self._is_closed:
            self.has_refused = True
            raise asyncio.CancelledError("the run of the workflow is suspended")
        if not self._is_loaded:
            await self.load()
        if call.key is not None:
            identity = identity_of_key(call.name, call.key)
            found = await self._record_of(identity, call, execute, recorded_failures)
            _last.set(identity)
            return self._outcome(found)
        base = self._base_of(call.name, call.arguments)
        number = self._numbers.take(base)
        identity = f"{base}{SEPARATOR}{number}"
        try:
            found = await self._record_of(identity, call, execute, recorded_failures)
        except BaseException:
            self._numbers.release(base, number)
            raise
        _last.set(identity)
        return self._outcome(found)

    def recall(self, name: str, arguments: object, key: str | None) -> tuple[object] | None:
        """Return the recorded result of a step, None if the step is to be called with `call`. Raises StepFailed.

        A run that starts again asks for thousands of recorded steps. This is the part of `call` that they need.
        """
        if len(self._asked) >= len(self._kept) or self._is_closed:  # it is not loaded, or it is replayed
            return None
        if key is not None:
            identity = identity_of_key(name, key)
            step = self._kept.get(identity)
        else:
            base = self._base_of(name, arguments)
            number = self._numbers.take(base)
            identity = f"{base}{SEPARATOR}{number}"
            step = self._kept.get(identity)
            if step is None:
                self._numbers.release(base, number)
        if step is None:
            return None
        self._note_asked(identity, step)
        _last.set(identity)
        return (self._result_of(step),)

    async def mailbox(self) -> list[BufferedSignal]:
        """Return the signals that the job has not received yet."""
        return await self._store.read_mailbox(self.job_id)

    def payload_of(self, signal: BufferedSignal | StoredSignal) -> object:
        """Return the payload of a signal. Raises SerializationError."""
        return self._store.decode(signal.data, "signal", "", self.job_id)

    def set_code(self, code: str) -> None:
        """Set the fingerprint of the workflow that this run executes."""
        self._code = code
        # A step of a middleware may have loaded the journal before.
        for left in self._left.values():
            left.difference_update([identity for identity in left if self._kept[identity].code == code])

    def has_left(self, name: str | None = None) -> bool:
        """Return whether this run has not asked for a step that a workflow with another fingerprint has recorded."""
        return any(self._left.values()) if name is None else bool(self._left.get(name))

    @property
    def is_fork(self) -> bool:
        """True if the journal began as a copy of another one."""
        return self._origin is not None

    @property
    def running_steps(self) -> int:
        """The number of steps that execute or are being recorded."""
        return len(self._running)

    async def confirm(self) -> None:
        """Wait until each signal that a step has received is recorded. Raises the errors of `call`."""
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

    def close(self) -> None:
        """Refuse further steps, because the run is being suspended. They raise CancelledError."""
        self._is_closed = True

    def reopen(self, entry: str, run: int) -> None:
        """Continue in the next run of the job, with this entry and fencing token. No run may have been between."""
        self._entry, self.run, self._is_closed = entry, run, False

    def results_of(self, name: str) -> list[object]:
        """Return the recorded results of the steps with this name."""
        kept = [(identity, step) for identity, step in self._kept.items() if step.name == name]
        return [step.result for step in recorded_steps(self._store, self.job_id, kept)]

    def new_steps(self) -> list[RecordedStep]:
        """Return the steps that this run has recorded."""
        return recorded_steps(self._store, self.job_id, ((name, self._kept[name]) for name in self._new))

    def steps_not_asked(self) -> list[RecordedStep]:
        """Return the steps that earlier runs have recorded and this run has not asked for, without accepted ones."""
        names = self._kept.keys() - self._asked
        steps = recorded_steps(self._store, self.job_id, ((name, self._kept[name]) for name in names))
        return [step for step in steps if step.run > self._accepted]

    async def load(self) -> None:
        """Read the recorded steps. Idempotent; the first call of a step does it."""
        async with self._loading:
            if self._is_loaded:
                return
            # No step can have been recorded before the first claim, so the first run need not read. A fork begins with
            # steps of its origin.
            if self.run != 1 or self._origin is not None:
                kept = await self._store.read_steps(self.job_id)
                self.requeued = kept.requeued
                marker = kept.steps.get(ACCEPTED)
                accepted = self._accepted = unpack_step(marker).run if marker else -1
                known = ("", self._code)
                for identity, packed in kept.steps.items():
                    step = unpack_step(packed)
                    if step.status != FAILED or step.run > kept.requeued:
                        self._kept[identity] = step
                        if step.code not in known and step.run > accepted:
                            self._left.setdefault(step.name, set()).add(identity)
                    self._bytes += len(identity) + len(packed)
            self._is_loaded = True

    def _base_of(self, name: str, arguments: object) -> str:
        """Return the identity of a call without its number."""
        try:
            serialized = self._store.payloads.serialize(arguments)
        except SerializationError as error:
            raise SerializationError(
                f"the arguments of step {name!r} of job {self.job_id} cannot be stored, so they cannot identify "
                f"the step: {error}. Pass a key= that is unique among the job's steps of this name",
                error.path,
            ) from error
        digest = blake2b(self._salt + serialized, digest_size=_DIGEST_BYTES).hexdigest()
        return f"{name}{SEPARATOR}{digest}"

    async def _record_of(
        self, identity: str, call: StepCall, execute: Callable[[], Awaitable[object]], recorded_failures: Failures
    ) -> _FoundStep | HandedOver:
        """Return a recorded step, or a received signal whose record needs no reply."""
        while (kept := self._kept.get(identity)) is None:
            running = self._running.get(identity)
            if running is None:
                return await self._execute(identity, call, execute, recorded_failures)
            # The other call has the same key, or it was cancelled while its result was being recorded.
            await asyncio.wait([running])
        self._note_asked(identity, kept)
        return _FoundStep(kept)

    def _note_asked(self, identity: str, step: StoredStep) -> None:
        self._asked.add(identity)
        if self._left and (left := self._left.get(step.name)) is not None:
            left.discard(identity)

    async def _execute(
        self, identity: str, call: StepCall, execute: Callable[[], Awaitable[object]], recorded_failures: Failures
    ) -> _FoundStep | HandedOver:
        limits = self._store.step_limits
        if len(self._kept) + len(self._running) >= limits.max_steps:
            raise JournalFull(self.job_id, call.name, f"it has {limits.max_steps} steps", "max_steps")
        self._running[identity] = running = asyncio.get_running_loop().create_future()
        is_recorded = False
        try:
            _executing.set(identity)
            if self._unconfirmed:
                await self.confirm()
            executed = await self._executed(call, execute, recorded_failures)
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
        return _FoundStep(step, executed.error)

    def _check(self, name: str, code: str) -> None:
        """Raise the error of a step that was not recorded."""
        if code == "gone":
            raise SignalGone
        if code == "full":
            raise JournalFull(self.job_id, name, "the server has refused the step", "max_steps or max_bytes")
        check_reply(code, f"record step {name!r} of", self.job_id)

    async def _executed(
        self, call: StepCall, execute: Callable[[], Awaitable[object]], recorded_failures: Failures
    ) -> _Executed:
        began, shown = now_ms(), self._shown(call)
        try:
            with running_step(call.name):
                source = await execute()
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
        body = self._store.encode([executed.shown, result], "step", call.name, self.job_id)
        outcome = COMPLETED if error is None else FAILED
        step = StoredStep(VERSION, outcome, call.name, self.run, executed.began, executed.ended, call.code, body)
        packed: bytes = msgpack.packb(step)
        size, most = len(identity) + len(packed), self._store.step_limits.max_bytes
        if self._bytes + size > most:
            raise JournalFull(self.job_id, call.name, f"it would exceed {most} bytes", "max_bytes")
        status = self._send(identity, packed, source.signal if isinstance(source, Received) else b"")
        self._bytes += size
        status.add_done_callback(partial(self._recorded, identity, step, size, running))
        return step, status

    def _send(self, identity: str, packed: bytes, signal: bytes) -> asyncio.Future[str]:
        if not signal:
            return self._store.record_step(self.job_id, self._entry, identity, packed)
        status = self._store.record_step(self.job_id, self._entry, identity, packed, signal)
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
            self._kept[identity] = step
            self._asked.add(identity)
            self._new.append(identity)
        else:
            self._bytes -= size
        self._end(identity, running)

    def _end(self, identity: str, running: asyncio.Future[None]) -> None:
        del self._running[identity]
        running.set_result(None)

    def _outcome(self, found: _FoundStep | HandedOver) -> object:
        """Return the result of a step that was called, or raise its failure."""
        if isinstance(found, HandedOver):
            return found.result  # its signal was decoded before
        return self._result_of(found.step, found.error)

    def _result_of(self, step: StoredStep, error: Exception | None = None) -> object:
        """Return the result of a step, or raise its failure, which `error` has caused in this run."""
        # The first run decodes its result too. So it gets the value that later runs will get, for example a list
        # instead of a tuple.
        _, result = body_of(self._store, self.job_id, step)
        if step.status == FAILED:
            raise StepFailed(step.name, *cast("list[str]", result)) from error
        return result


def _copy_status(status: asyncio.Future[str], recording: asyncio.Future[str]) -> None:
    if recording.cancelled():
        status.cancel()
    elif (error := recording.exception()) is not None:
        status.set_exception(error)
        status.exception()  # retrieved, as above
    else:
        status.set_result(recording.result())


def identity_of_key(name: str, key: str) -> str:
    """Return the identity of the step with this name and key."""
    return f"{name}{SEPARATOR}={key}"


def executing_step() -> str:
    """Return the identity of the step that last began to execute in this task, "" without one."""
    return _executing.get()


def last_step() -> str:
    """Return the identity of the step that was last asked for in this task, "" if there is none."""
    return _last.get()


def forget_last_step() -> None:
    """Begin a run: this task has asked for no step yet."""
    _last.set("")


def check_step(name: str, key: str | None) -> None:
    """Check the name and the key of a step. Raises TypeError or ValueError."""
    check_id("step name", name)
    if key is not None:
        check_id("step key", key)
