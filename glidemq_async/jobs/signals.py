"""Signals to jobs, and the methods by which a handler suspends or delays its job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn, TypeVar

from glidemq_async._internal.forgotten_calls import noted
from glidemq_async._internal.generics import Data, Result
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.durations import from_ms, instant_to_ms, to_ms
from glidemq_async.errors import JobStateError, Postponed, Suspended
from glidemq_async.functions.signals import BufferedSignal
from glidemq_async.jobs.fields import JobFields
from glidemq_async.jobs.replies import Asking, Reply, awaited_reply
from glidemq_async.jobs.reply_codes import check_reply
from glidemq_async.jobs.sent_signals import send_signal, send_typed
from glidemq_async.jobs.signal_types import decoded, name_of, signal_type
from glidemq_async.options.validation import reason as check_reason
from glidemq_async.stored.hand_over import StoredSignal
from glidemq_async.stored.names import check_id

__all__ = [
    "MOST_NAMES",
    "Signal",
    "SignalMethods",
    "Suspension",
    "mailbox_of",
]

T = TypeVar("T")

MOST_NAMES: Final = 100
"""Maximum number of names that a suspended job waits for."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal to a job: its `name`, its payload `data`, and the server's time `sent_at` when it was sent.

    `question` identifies the reply for which its sender waits, None if the sender waits for none.
    """

    name: str
    data: Any
    sent_at: datetime
    question: str | None = None


@dataclass(frozen=True, slots=True)
class Suspension:
    """The wait of a suspended job.

    `reason` is the text that the handler gave. `signals` has the names for which the job waits, None for any signal.
    `deadline` is the end of the timeout, None without one. `children`: the end of a child resumes the job too.
    """

    reason: str | None
    signals: tuple[str, ...] | None
    deadline: datetime | None
    children: bool = False


async def mailbox_of(client: QueueClient, job_id: str) -> list[Signal]:
    """Return the buffered signals of a job; see `Queue.get_mailbox`."""
    buffered = await client.functions.signals.mailbox(job_id)
    return [_signal(client, job_id, one) for one in buffered]


def _signal(client: QueueClient, job_id: str, stored: BufferedSignal | StoredSignal) -> Signal:
    data = client.decode(stored.data, "signal", "", job_id)
    return Signal(stored.name, data, from_ms(stored.sent), stored.question or None)


class SignalMethods(JobFields[Data, Result]):
    """The methods of a job for signals, suspension and steps of a handler."""

    __slots__ = ()

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The signals with which the job was resumed, in the order in which they were sent.

        Every run after a resume gets the same signals, also after a failure or a lost lease. They are forgotten when a
        run suspends the job again or ends it. Raises SerializationError.
        """
        return tuple(_signal(self._client, self.id, one) for one in self._resumed_with().signals)

    @property
    def suspension(self) -> Suspension | None:
        """The wait of a suspended job, None in any other state."""
        if self.state != "suspended" or self._waits is None:
            return None
        waits = self._waits
        return Suspension(waits.reason or None, waits.names, self.due_at, waits.children)

    @noted
    async def suspend(
        self,
        reason: str | None = None,
        *,
        timeout: float | timedelta | None = None,
        signals: Iterable[str | type] | None = None,
        single: bool = False,
        step: str | None = None,
    ) -> NoReturn:
        """End the run, and run the job again when it gets a signal or after `timeout` seconds. Only for handlers.

        The job is `suspended` until then. It occupies no slot, no ordering key and no limit, and no attempt is counted.
        The next run starts the handler from its beginning with `signals`, `resumed_by` and `step_name`. A signal that
        was sent before the suspension resumes the job immediately.

        - `reason` is shown in `suspension`: one line of at most 500 characters.
        - `signals`: the names or the classes to wait for. None means any signal; other signals remain in the mailbox.
        - `single`: take only the oldest of these signals from the mailbox, not all of them.
        - `step` becomes the `step_name` of the next run. None keeps the current one.

        Never returns: it raises Suspended, which the handler must not catch. Raises JobStateError outside of a handler,
        and TypeError or ValueError for a bad argument.
        """
        names = _names(signals)
        timeout_ms = None if timeout is None else to_ms("timeout", timeout)
        if names == () and timeout_ms is None:
            raise ValueError("signals is empty, so nothing can resume the job; name a signal, or pass a timeout")
        self._check_runs("suspend")
        raise Suspended(
            check_reason("reason", reason), timeout_ms=timeout_ms, signals=names, single=single, step=_step(step)
        )

    @noted
    async def move_to_delayed(self, until: datetime | float | timedelta, *, step: str | None = None) -> NoReturn:
        """End the run, and run the job again at an instant or after a number of seconds. Only for handlers.

        No attempt is counted. `step` becomes the `step_name` of the next run, so that a handler can continue where it
        ended; None keeps the current one. An instant is compared with the server's clock.

        Never returns: it raises Postponed, which the handler must not catch. Raises JobStateError outside of a handler,
        and TypeError or ValueError for a bad argument.
        """
        is_instant = isinstance(until, datetime)
        milliseconds = instant_to_ms("until", until) if isinstance(until, datetime) else to_ms("until", until)
        self._check_runs("delay")
        raise Postponed(milliseconds, is_instant=is_instant, step=_step(step))

    async def signal(
        self, name: str, data: object = None, *, ttl: float | timedelta | None = None, once: str | None = None
    ) -> bool:
        """Deliver a signal to this job; see `Queue.signal`."""
        return await send_signal(self._client, self.id, name, data, ttl, once)

    async def send(self, signal: object, *, ttl: float | timedelta | None = None, once: str | None = None) -> bool:
        """Send an instance of a class with `@mq.signal` to this job; see `Queue.send`."""
        return await send_typed(self._client, self.id, signal, ttl, once)

    async def send_and_wait(
        self,
        signal: object,
        data: object = None,
        *,
        timeout: float | timedelta | None = None,
        ttl: float | timedelta | None = None,
        once: str | None = None,
        reply_type: type[Reply] | None = None,
    ) -> Reply:
        """Send a signal to this job, and return the reply of its run; see `Queue.send_and_wait`."""
        return await awaited_reply(self._client, self.id, Asking(signal, data, ttl, once), timeout, reply_type)

    def received(self, kind: type[T]) -> tuple[T, ...]:
        """Return the signals of this class in `signals`, in their order.

        Raises TypeError for a class without `@mq.signal`, and SerializationError for a payload of another form.
        """
        name = signal_type(kind).name
        return tuple(decoded(kind, one.data) for one in self.signals if one.name == name)

    async def resume(self) -> None:
        """Run a suspended job again without a signal; see `Queue.resume_job`. Raises JobStateError, JobNotFound."""
        check_reply(await self._client.functions.signals.resume(self.id), "resume", self.id)

    def _check_runs(self, asked: str) -> None:
        if not self._entry:
            raise JobStateError(f"{asked} job {self.id}", "not running here", "call this in the handler of the job")


def _names(signals: Iterable[str | type] | None) -> tuple[str, ...] | None:
    if signals is None:
        return None
    if isinstance(signals, str | type):
        raise TypeError(f"signals must be a list, not one {type(signals).__name__}; pass [{_shown(signals)}]")
    names = tuple(dict.fromkeys(check_id("signal name", name_of(one)) for one in signals))
    if len(names) > MOST_NAMES:
        raise ValueError(f"signals must be at most {MOST_NAMES} names, got {len(names)}; wait for any signal with None")
    return names


def _shown(signal: str | type) -> str:
    return signal.__name__ if isinstance(signal, type) else repr(signal)


def _step(step: str | None) -> str:
    return "" if step is None else check_id("step", step)
