"""Backoff strategies: the time that a failed job waits before its next attempt.

The worker decides if there is a next attempt. It also holds the strategies that are registered by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, Self

from glidemq_async.durations import MAX_MS, to_ms
from glidemq_async.stored.names import check_id

__all__ = ["Backoff"]

_LONGEST: Final = MAX_MS // 1000


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait between two attempts of a job. Create one with `fixed`, `exponential` or `custom`.

    `kind` is the method that created it. `initial` is the wait after the first failure in seconds, and `factor` is the
    growth of an exponential one. `jitter` is a fraction from 0 to 1: the wait varies randomly by this fraction in both
    directions. `max` is the longest wait in seconds, None for no bound. `name` is the name of a custom strategy.
    """

    kind: Literal["fixed", "exponential", "custom"]
    initial: float = 0.0
    max: float | None = None
    jitter: float = 0.0
    factor: float = 2.0
    name: str = ""

    @classmethod
    def fixed(
        cls,
        delay: float | timedelta,
        jitter: float = 0.0,
        max: float | timedelta | None = None,  # noqa: A002
    ) -> Self:
        """Wait the same `delay` in seconds before every attempt. Raises ValueError or TypeError for bad values."""
        return cls("fixed", _seconds("backoff delay", delay), _optional_max(max), _fraction(jitter))

    @classmethod
    def exponential(
        cls,
        delay: float | timedelta,
        max: float | timedelta | None = None,  # noqa: A002
        jitter: float = 0.0,
        factor: float = 2.0,
    ) -> Self:
        """Wait `delay` seconds after the first failure, and `factor` times as long after each further failure.

        `factor` is at least 1. Raises ValueError or TypeError for bad values.
        """
        initial, cap = _seconds("backoff delay", delay), _optional_max(max)
        return cls("exponential", initial, cap, _fraction(jitter), _number("backoff factor", factor, 1.0))

    @classmethod
    def custom(cls, name: str) -> Self:
        """Use the strategy that the worker registers under `name` in its `backoff_strategies`."""
        return cls("custom", name=check_id("backoff strategy name", name))

    def delay(self, attempts_made: int, random: Callable[[], float]) -> float:
        """Return the wait in seconds after `attempts_made` runs (1 after the first).

        `random` returns a number from 0 up to 1, like random.random. Raises ValueError for a custom strategy, because
        only the worker that registered the strategy can compute the wait.
        """
        if self.kind == "custom":
            raise ValueError(f"backoff strategy {self.name!r} is computed by the worker that registers it")
        wait = self.initial
        if self.kind == "exponential" and wait:
            wait = _grown(wait, self.factor, attempts_made - 1)
        cap = _LONGEST if self.max is None else self.max
        # Apply the maximum before the jitter too. Otherwise every wait far above `max` would be exactly `max`.
        wait = min(wait, cap)
        # Jobs that failed together, for example in an outage of a service, would otherwise all run again in the same
        # millisecond.
        if self.jitter:
            wait = min(wait * (1.0 + self.jitter * (2.0 * random() - 1.0)), cap)
        return wait


def _grown(initial: float, factor: float, times: int) -> float:
    try:
        return initial * factor ** max(times, 0)
    # The exponent grows with the attempts, and `attempts` may be in the thousands. The caller bounds the result.
    except OverflowError:
        return math.inf


def _seconds(option: str, value: float | timedelta) -> float:
    return to_ms(option, value) / 1000


def _optional_max(value: float | timedelta | None) -> float | None:
    return None if value is None else _seconds("backoff max", value)


def _fraction(value: float) -> float:
    if _number("backoff jitter", value, 0.0) > 1.0:
        raise ValueError(f"backoff jitter must be a fraction from 0 to 1, got {value!r}")
    return float(value)


def _number(option: str, value: object, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{option} must be a number, not {value!r}")
    if not math.isfinite(value) or value < least:
        raise ValueError(f"{option} must be finite and at least {least:g}, got {value!r}")
    return float(value)
