"""Rate limits and token buckets for queues and ordering keys; see limits.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from glidemq_async.durations import to_ms
from glidemq_async.options.validation import positive_real, whole_number

__all__ = ["RateLimit", "TokenBucket", "stored_limit"]

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


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """A rate limit that allows bursts. The bucket holds `capacity` tokens and gains `refill_rate` tokens per second.

    A job takes its `cost` in tokens (default: 1). A job that costs more than the capacity starts when the bucket is
    full and leaves a negative balance, so the rate is kept and every job starts eventually. The balance is exact to a
    thousandth of a token. Raises TypeError or ValueError for a bad limit.
    """

    capacity: float
    refill_rate: float

    def __post_init__(self) -> None:
        positive_real("capacity", self.capacity)
        positive_real("refill_rate", self.refill_rate)


def stored_limit(limit: RateLimit | TokenBucket) -> str:
    """Return the stored form of a limit, which the server functions read."""
    if isinstance(limit, RateLimit):
        return f"{limit.max} {to_ms('duration', limit.duration)}"
    return f"{round(limit.capacity * THOUSANDTHS)} {round(limit.refill_rate * THOUSANDTHS)}"
