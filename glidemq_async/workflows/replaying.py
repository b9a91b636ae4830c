"""Replay exported runs with the present code of a workflow, without a server. Steps return their recorded results."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from typing_extensions import override

from glidemq_async.client.payload_coder import Payloads
from glidemq_async.errors import StepFailed
from glidemq_async.functions.signals import BufferedSignal
from glidemq_async.functions.steps import StoredJournal
from glidemq_async.jobs.journal import Journal
from glidemq_async.jobs.step_recorder import Failures, StepCall
from glidemq_async.options.steps import StepLimits
from glidemq_async.payloads.codecs.chain import PayloadKind
from glidemq_async.payloads.serialization import MsgpackSerializer
from glidemq_async.workflows.run import LIBRARY_STEPS, WorkflowRun, call_of, only_failure, running, shown_call
from glidemq_async.workflows.waiting import Given, Waiting

_FORMAT: Final = 1
_PLAIN: Final = MsgpackSerializer()
_TURNS: Final = 50
"""Turns of the event loop without a call of a step. After them, a run that waits for steps makes no more calls."""
_PATIENCE: Final = 1.0
"""Time in seconds that a run gets for awaits other than steps."""
_REPLAYS_FROM: Final = 2
"""The number of the run that the replay stands for. The first one would not read the journal."""

Verdict: TypeAlias = Literal["same", "new steps", "other arguments", "not asked any more", "raises", "unknown"]
"""The effect of the present code on a run.

- "same": it asks for the recorded steps, and has ended or waits.
- "new steps": it asks for steps that are not recorded, and no recorded step contradicts them so far.
- "other arguments": it asks for a step with other arguments than recorded. The run would diverge.
- "not asked any more": it ends, and has not asked for a recorded step. The run would diverge.
- "raises": the function raises an exception that is no recorded failure of a step.
- "unknown": the app has no workflow of this name, or the run cannot be read.
"""


@dataclass(frozen=True, slots=True)
class RunReplay:
    """The replay of one run.

    `left` has the recorded calls that were not asked for, and `asked` the calls without a record.
    """

    id: str
    workflow: str
    verdict: Verdict
    left: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    reason: str = ""

    @property
    def fits(self) -> bool:
        """True if the run can continue with the present code."""
        return self.verdict in {"same", "new steps"}


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """A run with its call and its journal. The payloads are plain msgpack, without the codecs of the queue."""

    queue: str
    id: str
    workflow: str
    origin: str | None
    call: bytes
    requeued: int
    steps: dict[str, bytes]

    @classmethod
    def of(
        cls, queue: str, job_id: str, name: str, origin: str | None, data: object, journal: StoredJournal
    ) -> ExportedRun:
        """Return a run. Raises SerializationError if its call contains more than msgpack can store."""
        return cls(queue, job_id, name, origin, _PLAIN.dumps(data), journal.requeued, journal.steps)

    def to_json(self) -> str:
        """Return the run as one line of JSON."""
        steps = {identity: b64encode(packed).decode() for identity, packed in self.steps.items()}
        return json.dumps(
            {
                "format": _FORMAT,
                "queue": self.queue,
                "id": self.id,
                "workflow": self.workflow,
                "origin": self.origin,
                "call": b64encode(self.call).decode(),
                "requeued": self.requeued,
                "steps": steps,
            }
        )

    @classmethod
    def from_json(cls, line: str) -> ExportedRun:
        """Return a run from its line. Raises ValueError for any other text."""
        try:
            found = json.loads(line)
            if found["format"] != _FORMAT:
                raise ValueError(f"the format {found['format']} is not known")
            steps = {identity: b64decode(packed) for identity, packed in found["steps"].items()}
            queue, job_id, name, origin = (found[part] for part in ("queue", "id", "workflow", "origin"))
            return cls(queue, job_id, name, origin, b64decode(found["call"]), found["requeued"], steps)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a run of `glidemq workflows export`: {error!r}") from error


class _Store:
    """The store of one exported journal. It keeps what the replay records to itself."""

    step_limits = StepLimits()

    def __init__(self, run: ExportedRun, payloads: Payloads) -> None:
        self.payloads = payloads
        self._journal = StoredJournal(run.steps, run.requeued)

    def encode(self, value: object, kind: PayloadKind, name: str, job_id: str) -> bytes:
        """Encode a value without codecs."""
        del kind, name, job_id
        return _PLAIN.dumps(value)

    def decode(self, data: bytes, kind: PayloadKind, name: str, job_id: str) -> object:
        """Decode a value without codecs."""
        del kind, name, job_id
        return _PLAIN.loads(data)

    async def read_steps(self, job_id: str) -> StoredJournal:
        """Return the exported journal."""
        del job_id
        return self._journal

    def record_step(
        self, job_id: str, entry: str, identity: str, packed: bytes, signal: bytes = b""
    ) -> asyncio.Future[str]:
        """Accept a value that the library records, for example the time."""
        del job_id, entry, identity, packed, signal
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        done.set_result("ok")
        return done

    async def read_mailbox(self, job_id: str) -> list[BufferedSignal]:
        """Return nothing: an exported run has no mailbox."""
        del job_id
        return []


class _Waits(Waiting):
    """Waits that nothing ends, except an instant that has come."""

    @override
    async def signal(self, names: frozenset[str] | None, deadline: int | None) -> list[Any]:
        return await _for_ever()

    @override
    async def instant(self, deadline: int) -> None:
        if deadline > time.time() * 1000:
            await _for_ever()


class _Replay(WorkflowRun):
    """A run that executes no step. It notes the calls that have no record."""

    def __init__(self, journal: Journal, workflow: str, code: str) -> None:
        super().__init__(journal, workflow, code, "warn")
        self.waiting = _Waits(journal, Given(), self.clock)
        self.calls = 0
        self.asked: list[StepCall] = []

    @override
    async def ask(
        self,
        name: str,
        arguments: object,
        execute: Callable[[], Awaitable[object]],
        *,
        key: str | None = None,
        recorded_failures: Failures = (),
    ) -> object:
        self.calls += 1
        call = StepCall(name, arguments, key, self.code)

        async def note() -> object:
            # The library's own steps, for example the time, have no effect.
            if name.startswith(LIBRARY_STEPS):
                return await execute()
            self.asked.append(call)
            return await _for_ever()

        return await self.journal.call(call, note)

    @override
    def recall(self, name: str, arguments: object, key: str | None) -> tuple[object] | None:
        found = super().recall(name, arguments, key)
        self.calls += found is not None
        return found

    async def settle(self, main: asyncio.Task[Any]) -> None:
        """Return when the function has ended, or makes no more calls of steps."""
        quiet, began = 0, asyncio.get_running_loop().time()
        while not main.done():
            before = self.calls
            await asyncio.sleep(0)
            quiet = quiet + 1 if self.calls == before else 0
            if quiet < _TURNS:
                continue
            if self.asked or asyncio.get_running_loop().time() - began > _PATIENCE:
                return
            await asyncio.sleep(0.01)


async def replay_run(
    run: ExportedRun,
    function: Callable[..., Coroutine[Any, Any, Any]],
    code: str,
    payloads: Payloads,
    read: Callable[[object], tuple[list[Any], dict[str, Any]]],
) -> RunReplay:
    """Replay a run with a function, the fingerprint of its code, and the payloads of its queue. `read` reads a call."""
    journal = Journal(_Store(run, payloads), run.id, "", _REPLAYS_FROM, run.origin)
    replay = _Replay(journal, run.workflow, code)

    async def body() -> object:
        args, kwargs = read(_PLAIN.loads(run.call))
        with running(replay):
            return await function(*args, **kwargs)

    main = asyncio.ensure_future(body())
    await replay.settle(main)
    has_ended = main.done()
    journal.close()
    main.cancel()
    await asyncio.wait([main], timeout=_PATIENCE)
    error: BaseException | None = None
    if has_ended and not main.cancelled():
        error = main.exception()
    await journal.load()  # the function may have asked for no step
    return _judged(run, replay, has_ended=has_ended, error=error)


def _judged(run: ExportedRun, replay: _Replay, *, has_ended: bool, error: BaseException | None) -> RunReplay:
    left, asked = replay.steps_left(), [shown_call(call) for call in replay.asked]
    names = {call.name for call in replay.asked}
    same_name = [step for step in left if step.name in names]
    verdict: Verdict = "new steps" if asked else "same"
    reason = ""
    is_failure = (
        error is None
        or isinstance(error, StepFailed)
        or (isinstance(error, Exception) and only_failure(error) is not None)
    )
    if not is_failure:
        verdict, reason = "raises", f"{type(error).__name__}: {error}"
    elif same_name:
        verdict, left = "other arguments", same_name
    elif has_ended and left:
        verdict = "not asked any more"
    elif verdict == "same" or not left:
        left = []
    shown = tuple(call_of(step) for step in left) if verdict not in {"same", "new steps"} else ()
    return RunReplay(run.id, run.workflow, verdict, shown, tuple(asked), reason)


async def _for_ever() -> list[Any]:
    forever: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
    return await forever
