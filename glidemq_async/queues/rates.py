"""Rates: how many jobs may start in a time. What a key or a queue is limited to; see limits.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from glidemq_async.durations import to_ms
from glidemq_async.options.validation import positive_real, whole_number

__all__ = ["RateLimit", "TokenBucket"]

THOUSANDTHS: Final = 1_000


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `max` starts in any window of `duration` seconds: a sliding window, exact to the millisecond.

    Raises TypeError or ValueError for a bad bound.
    """

    max: int
    duration: float | timedelta

    def __post_init__(self) -> None:
        whole_number("max", self.max, least=1)
        object.__setattr__(self, "duration", to_ms("duration", self.duration, allow_zero=False) / 1000)

    @property
    def duration_ms(self) -> int:
        """The length of the window in milliseconds."""
        return to_ms("duration", self.duration)

    def to_wire(self) -> str:
        """Return the form that the functions read."""
        return f"{self.max} {self.duration_ms}"


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """Starts are paid in tokens: a bucket holds `capacity`, and gets `refill_rate` new ones a second.

    A job costs its `cost` (1 unless its options say otherwise). One that costs more than the bucket holds starts when
    the bucket is full and leaves it in debt, so the rate holds and no job waits for ever. Exact to a thousandth of a
    token. Raises TypeError or ValueError for a bad bound.
    """

    capacity: float
    refill_rate: float

    def __post_init__(self) -> None:
        positive_real("capacity", self.capacity)
        positive_real("refill_rate", self.refill_rate)

    def to_wire(self) -> str:
        """Return the form that the functions read."""
        return f"{round(self.capacity * THOUSANDTHS)} {round(self.refill_rate * THOUSANDTHS)}"
