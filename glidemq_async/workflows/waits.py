"""The waits of workflows: for signals and for instants. A run that only waits holds no slot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast, overload

from glidemq_async.durations import from_ms, parse_duration, to_ms
from glidemq_async.jobs.signal_types import decoded, name_of
from glidemq_async.jobs.signals import Signal
from glidemq_async.jobs.step_recorder import SignalGone
from glidemq_async.stored.names import check_id
from glidemq_async.workflows.run import WorkflowRun, required_run
from glidemq_async.workflows.waiting import RECEIVE

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")

Duration: TypeAlias = float | timedelta | str
"""Seconds, a timedelta, or a text such as "90s", "1h30m" and "3d"."""


async def sleep(delay: Duration, *, key: str | None = None) -> None:
    """Wait for `delay`, counted from the first run that made this call. `key` identifies the call.

    The end of the wait is recorded, so a later run waits only for the rest. A run that only waits, for more than a
    second, holds no slot. Raises TypeError or ValueError.
    """
    milliseconds = _ms("delay", delay)
    run = required_run("workflows.sleep")
    await run.waiting.instant(await _deadline(run, "workflow.sleep", [milliseconds], milliseconds, key))


@overload
async def receive(kind: type[T], /, *, timeout: Duration | None = None, key: str | None = None) -> T: ...
@overload
async def receive(
    first: type[T], second: type[U], /, *, timeout: Duration | None = None, key: str | None = None
) -> T | U: ...
@overload
async def receive(
    first: type[T], second: type[U], third: type[V], /, *, timeout: Duration | None = None, key: str | None = None
) -> T | U | V: ...
@overload
async def receive(*names: str, timeout: Duration | None = None, key: str | None = None) -> Signal: ...
@overload
async def receive(*kinds: type | str, timeout: Duration | None = None, key: str | None = None) -> Any: ...


async def receive(*kinds: type | str, timeout: Duration | None = None, key: str | None = None) -> Any:
    """Wait for the next signal of one of these kinds, and return it: an instance of its class, or a Signal for a name.

    Without a kind it waits for any signal. Signals come in the order in which they were sent, also those that were sent
    before the call. Each one is received once: later runs of the job return the same signal from the journal. A run
    that only waits holds no slot.

    - `timeout` is a Duration, counted from the first run that made this call. Then it raises TimeoutError, in later
      runs too.
    - `key` identifies the call. Without it, calls with equal arguments are interchangeable.

    Raises TypeError for a class without `@mq.signal`, ValueError for a bad name or timeout, and SerializationError for
    a signal whose payload does not fit its class.
    """
    run = required_run("workflows.receive")
    by_name = {check_id("signal name", name_of(kind)): kind for kind in kinds}
    milliseconds = None if timeout is None else _ms("timeout", timeout)
    arguments: list[object] = [sorted(by_name), milliseconds]
    deadline = None
    if milliseconds is not None:
        deadline = await _deadline(run, "workflow.timeout", arguments, milliseconds, key)
    wait = partial(run.waiting.signal, frozenset(by_name) or None, deadline)
    found = cast("list[Any]", await _received_by(run, arguments, wait, key))
    if not found:
        names = ", ".join(by_name) or "any signal"
        raise TimeoutError(f"workflow run {run.journal.job_id} has not received {names} within {timeout}")
    return _received(run, by_name, found)


async def _received_by(
    run: WorkflowRun, arguments: list[object], wait: Callable[[], Awaitable[object]], key: str | None
) -> object:
    while True:
        with suppress(SignalGone):
            return await run.ask(RECEIVE, arguments, wait, key=key)


def _received(run: WorkflowRun, by_name: Mapping[str, type | str], found: Sequence[Any]) -> object:
    """Return a signal from what the journal has recorded."""
    name, data, sent, *asked = found[2:]
    question = cast("str", asked[0]) if asked else None
    kind: object = by_name.get(name)
    if isinstance(kind, type):
        signal: object = decoded(cast("type[object]", kind), data)
    else:
        signal = Signal(name, data, from_ms(sent), question)
    if question is not None:
        run.note_question(signal, question)
    return signal


async def _deadline(run: WorkflowRun, step: str, arguments: list[Any], milliseconds: int, key: str | None) -> int:
    async def deadline() -> int:
        return run.clock.now_ms() + milliseconds

    return cast("int", await run.ask(step, arguments, deadline, key=key))


def _ms(option: str, value: Duration) -> int:
    if not isinstance(value, str):
        return to_ms(option, value)
    seconds = parse_duration(value)
    if seconds is None:
        raise ValueError(f'{option} must be seconds, a timedelta, or a text such as "90s" or "1h30m", not {value!r}')
    return to_ms(option, seconds)
