"""The journal of one run: finds the recorded steps of a job by their calls, and has new ones executed.

functions/journals.lua describes how journals are stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from hashlib import blake2b
from typing import Final, cast

from glidemq_async.errors import JournalFull, SerializationError, StepFailed
from glidemq_async.functions.signals import BufferedSignal
from glidemq_async.jobs.call_numbers import Numbers
from glidemq_async.jobs.recorded_steps import (
    FAILED,
    SEPARATOR,
    RecordedStep,
    StoredStep,
    body_of,
    recorded_steps,
    unpack_step,
)
from glidemq_async.jobs.step_recorder import Failures, FoundStep, HandedOver, StepCall, StepRecorder, StepStore
from glidemq_async.stored.hand_over import StoredSignal
from glidemq_async.stored.names import check_id

_DIGEST_BYTES: Final = 12
FORKED_FROM: Final = "forked_from"
"""The header of a fork: the id of the job whose journal it began with. Its digests contain that id."""
ACCEPTED: Final = "workflow.accepted"
"""The name and identity of the step that an operator records to accept the code of a workflow."""

# The step that was last asked for in this task. A new task inherits it with its context.
_last: Final[ContextVar[str]] = ContextVar("glidemq_last_step", default="")


# A run asks for its steps in any order: tasks of a group run concurrently, and finish at other times in each run. So a
# step has no position. Its identity is its name, a digest of its arguments, and the number of equal calls before it.
# Equal calls are interchangeable, because equal inputs are all that distinguishes them for the program.
#
# The number belongs to a call until the call has received its result. If the call is cancelled or fails, the next equal
# call takes the number. Otherwise a program that repeats a call after a timeout would record its success under the
# number 1, and the next run would execute the call under the number 0 again.
class Journal:
    """The recorded steps of one job, as its present run uses them."""

    def __init__(self, store: StepStore, job_id: str, entry: str, run: int, origin: str | None = None) -> None:
        self._store = store
        self.job_id = job_id
        self._origin = origin
        # The id makes equal arguments of several jobs look different to a reader of the store.
        self._salt = (origin or job_id).encode() + b"\0"
        self.recorder = StepRecorder(store, job_id, entry, run, self._note_recorded)
        self.requeued = 0
        """The fencing token of the last run before the job was requeued by hand, 0 if it never was. See `load`."""
        self._is_closed = False
        self.has_refused = False
        """True if the function asked for a step after `close`. It was cancelled, so it cannot continue."""
        self._is_loaded = False
        self._loading = asyncio.Lock()
        self._kept: dict[str, StoredStep] = {}
        self._accepted = -1
        """The last run whose steps need not be asked for, because an operator has accepted the code; -1 for none."""
        self._numbers = Numbers()
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
    def run(self) -> int:
        """The fencing token of the run."""
        return self.recorder.run

    def close(self) -> None:
        """Refuse further steps, because the run is being suspended. They raise CancelledError."""
        self._is_closed = True

    def reopen(self, entry: str, run: int) -> None:
        """Continue in the next run of the job, with this entry and fencing token. No run may have been between."""
        self.recorder.entry, self.recorder.run, self._is_closed = entry, run, False

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
                    self.recorder.bytes += len(identity) + len(packed)
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
    ) -> FoundStep | HandedOver:
        """Return a recorded step, or a received signal whose record needs no reply."""
        running = self.recorder.running
        while (kept := self._kept.get(identity)) is None:
            if identity not in running:
                most = self._store.step_limits.max_steps
                if len(self._kept) + len(running) >= most:
                    raise JournalFull(self.job_id, call.name, f"it has {most} steps", "max_steps")
                return await self.recorder.execute(identity, call, execute, recorded_failures)
            # The other call has the same key, or it was cancelled while its result was being recorded.
            await asyncio.wait([running[identity]])
        self._note_asked(identity, kept)
        return FoundStep(kept)

    def _note_recorded(self, identity: str, step: StoredStep) -> None:
        self._kept[identity] = step
        self._asked.add(identity)
        self._new.append(identity)

    def _note_asked(self, identity: str, step: StoredStep) -> None:
        self._asked.add(identity)
        if self._left and (left := self._left.get(step.name)) is not None:
            left.discard(identity)

    def _outcome(self, found: FoundStep | HandedOver) -> object:
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


def identity_of_key(name: str, key: str) -> str:
    """Return the identity of the step with this name and key."""
    return f"{name}{SEPARATOR}={key}"


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
