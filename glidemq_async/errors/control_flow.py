"""Exceptions with which a handler controls the next step of its job."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from glidemq_async.durations import to_ms
from glidemq_async.errors.base import GlideMQError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta


class ControlFlow(GlideMQError):
    """Base class of the exceptions with which a handler controls its job. Raise one of the subclasses."""


class UnrecoverableError(ControlFlow):
    """Raise in a handler to fail the job permanently, even if attempts remain."""


class _Wait(ControlFlow):
    _announcement: Literal["retry in", "rate limited for"]
    waits_for: str = ""
    """The reason for the wait if the library itself raises this; stored as the job's `failed_reason`."""

    def __init__(self, delay: float | timedelta) -> None:
        milliseconds = to_ms("delay", delay)
        super().__init__(f"{self._announcement} {milliseconds / 1000:g} s")
        self.delay_ms = milliseconds

    @property
    def delay(self) -> float:
        """The delay in seconds."""
        return self.delay_ms / 1000

    def __reduce__(self) -> tuple[Callable[..., _Wait], tuple[object, ...]]:
        return type(self), (self.delay,)


class RetryLater(_Wait):
    """Raise in a handler to run the job again after `delay` seconds.

    By default the run does not count as an attempt, so a job can be postponed indefinitely. With `count=True` it
    counts, and the job fails when its `attempts` are used up. Raise this `from` another exception to record that
    exception as the failure of the job. Raises TypeError or ValueError for a bad `delay` or `count`.
    """

    _announcement = "retry in"

    def __init__(self, delay: float | timedelta, *, count: bool = False) -> None:
        super().__init__(delay)
        if not isinstance(count, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"count must be True or False, got {count!r}")
        self.count = count

    @override
    def __reduce__(self) -> tuple[Callable[..., RetryLater], tuple[object, ...]]:
        return _retry_later, (self.delay, self.count)


def _retry_later(delay: float, count: bool) -> RetryLater:
    return RetryLater(delay, count=count)


class RateLimited(_Wait):
    """Raise in a handler when an external limit was hit, to run the job again after `delay` seconds.

    The run does not count as an attempt. Until the job runs again, no job with the same ordering key starts. If the job
    has no key, no job of the queue starts. The worker's JobBudget limits the delay to one hour by default; after that
    the job runs again and can raise this again.
    """

    _announcement = "rate limited for"


class Postponed(ControlFlow):
    """Raised by `job.move_to_delayed` to end the run. A handler must not catch it.

    `milliseconds` is the delay, or the instant since 1970 if `is_instant`. `step` is "" if the step stays the same.
    """

    def __init__(self, milliseconds: int, *, is_instant: bool = False, step: str = "") -> None:
        super().__init__(f"delayed {'until' if is_instant else 'for'} {milliseconds} ms")
        self.milliseconds = milliseconds
        self.is_instant = is_instant
        self.step = step

    def __reduce__(self) -> tuple[Callable[..., Postponed], tuple[object, ...]]:
        return _postponed, (self.milliseconds, self.is_instant, self.step)


def _postponed(milliseconds: int, is_instant: bool, step: str) -> Postponed:
    return Postponed(milliseconds, is_instant=is_instant, step=step)


class Suspended(ControlFlow):
    """Raised by `job.suspend` to end the run. A handler must not catch it.

    `signals` are the names that the job waits for, None for any signal; `single`: it takes one of them. `timeout_ms` is
    None without a timeout. With `gives_back` the signals of this run return to the mailbox. With `known_ends` the end
    of a child resumes the job too; it is the number of its children that have ended as far as the run knows. `is_warm`
    is set if the worker keeps the function of the run in memory.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        timeout_ms: int | None = None,
        signals: tuple[str, ...] | None = None,
        single: bool = False,
        step: str = "",
        gives_back: bool = False,
        known_ends: int | None = None,
    ) -> None:
        super().__init__(f"suspended: {reason}" if reason else "suspended")
        self.reason = reason
        self.timeout_ms = timeout_ms
        self.signals = signals
        self.single = single
        self.step = step
        self.gives_back = gives_back
        self.known_ends = known_ends
        self.is_warm = False

    def __reduce__(self) -> tuple[Callable[..., Suspended], tuple[object, ...]]:
        names = ("reason", "timeout_ms", "signals", "single", "step", "gives_back", "known_ends")
        return partial(Suspended, **{name: getattr(self, name) for name in names}), ()


class WaitingForChildren(ControlFlow):
    """Raised by `job.move_to_waiting_children` to end the run. A handler must not catch it."""

    def __init__(self) -> None:
        super().__init__("the job waits for its children")

    def __reduce__(self) -> tuple[Callable[..., WaitingForChildren], tuple[object, ...]]:
        return type(self), ()
