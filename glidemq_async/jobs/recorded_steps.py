"""The stored form of recorded steps, and the steps as users see them.

functions/journals.lua describes how journals are stored.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, Protocol, cast

import msgpack

from glidemq_async.durations import from_ms
from glidemq_async.errors import SerializationError, StepFailed
from glidemq_async.payloads.codecs.chain import PayloadKind

SEPARATOR: Final = "\x1f"
VERSION: Final = 1
COMPLETED: Final = "c"
FAILED: Final = "f"


class StepCoder(Protocol):
    """The part of a client that encodes and decodes the bodies of steps."""

    def encode(self, value: object, kind: PayloadKind, name: str, job_id: str) -> bytes:
        """Encode a value. Raises SerializationError or PayloadTooLarge."""
        ...

    def decode(self, data: bytes, kind: PayloadKind, name: str, job_id: str) -> object:
        """Decode a value. Raises SerializationError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """A recorded step of a job.

    `name` is the name of the step, and `key` the key of its call. `arguments` are the arguments of the call, None if
    they have more than 4 KiB. `status` is "completed", with a `result`, or "failed", with an `error`. `run` is the
    fencing token of the run that recorded the step. `code` is the fingerprint of its workflow, "" outside of a
    workflow. `started_at` and `finished_at` are times of the worker's clock.
    """

    name: str
    status: Literal["completed", "failed"]
    arguments: Any
    result: Any
    error: StepFailed | None
    key: str | None
    run: int
    code: str
    started_at: datetime
    finished_at: datetime


class StoredStep(NamedTuple):
    """The stored form of a step. `body` is the encoded pair of its arguments and its result.

    `began` and `ended` are in ms, with fractions. Earlier versions stored whole numbers.
    """

    version: int
    status: str
    name: str
    run: int
    began: float
    ended: float
    code: str
    body: bytes


def recorded_steps(store: StepCoder, job_id: str, kept: Iterable[tuple[str, StoredStep]]) -> list[RecordedStep]:
    """Return the steps of a journal in the order in which they ended."""
    found = [_step(store, job_id, identity, step) for identity, step in kept]
    return sorted(found, key=lambda step: (step.finished_at, step.started_at))


def read_stored(store: StepCoder, job_id: str, kept: Iterable[tuple[str, bytes]]) -> list[RecordedStep]:
    """Return the steps of a journal that was just read, in the order in which they ended. Raises SerializationError."""
    return recorded_steps(store, job_id, ((identity, unpack_step(packed)) for identity, packed in kept))


def packed_mark(store: StepCoder, job_id: str, name: str, run: int) -> bytes:
    """Return the stored form of a step without arguments and result, for the run with this fencing token."""
    body = store.encode([None, None], "step", name, job_id)
    now = now_ms()
    return msgpack.packb(StoredStep(VERSION, COMPLETED, name, run, now, now, "", body))


def _step(store: StepCoder, job_id: str, identity: str, step: StoredStep) -> RecordedStep:
    arguments, result = body_of(store, job_id, step)
    has_failed = step.status == FAILED
    last = identity.rpartition(SEPARATOR)[2]
    return RecordedStep(
        name=step.name,
        status="failed" if has_failed else "completed",
        arguments=arguments,
        result=None if has_failed else result,
        error=StepFailed(step.name, *cast("list[str]", result)) if has_failed else None,
        key=last[1:] if last.startswith("=") else None,
        run=step.run,
        code=step.code,
        started_at=from_ms(step.began),
        finished_at=from_ms(step.ended),
    )


def unpack_step(packed: bytes) -> StoredStep:
    """Return a step from its stored form. Raises SerializationError."""
    try:
        step = StoredStep._make(cast("list[Any]", msgpack.unpackb(packed)))
    except (ValueError, TypeError) as error:
        raise SerializationError(f"a recorded step cannot be read: {error!r}") from error
    if step.version != VERSION:
        raise SerializationError(f"a recorded step has the form {step.version}, which a newer version has written")
    return step


def body_of(store: StepCoder, job_id: str, step: StoredStep) -> tuple[object, object]:
    """Return the arguments and the result of a step. Raises SerializationError."""
    arguments, result = cast("list[object]", store.decode(step.body, "step", step.name, job_id))
    return arguments, result


def now_ms() -> float:
    """Return the time of the worker's clock in ms since the epoch."""
    # With fractions, because several steps can end in one millisecond, and steps are sorted by these times.
    return time.time() * 1000
