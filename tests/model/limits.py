"""Limits of the queue or of one key: concurrency, rate, token bucket."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Bucket = tuple[int, int]
"""A token bucket: its capacity and its refill per second, both in thousandths of a token."""


class Limits(NamedTuple):
    """The limits of one key. None means: no limit of this kind."""

    concurrency: int | None = None
    rate: tuple[int, int] | None = None  # at most this many starts in any window of this many ms
    bucket: Bucket | None = None

    def changed(self, name: str, value: str) -> Limits:
        """Return the limits with one of them replaced by its wire form; "" removes it."""
        words = tuple(int(word) for word in value.split())
        if name == "concurrency":
            return self._replace(concurrency=words[0] if words else None)
        pair = (words[0], words[1]) if words else None
        return self._replace(rate=pair) if name == "rate" else self._replace(bucket=pair)

    def over(self, common: Limits) -> Limits:
        """Return these limits, completed with the limits of `other`."""
        concurrency = self.concurrency if self.concurrency is not None else common.concurrency
        return Limits(concurrency, self.rate or common.rate, self.bucket or common.bucket)


@dataclass
class Usage:
    """The counters of the limits."""

    starts: list[int] = field(default_factory=list[int])
    tokens: int | None = None  # after the last payment; None: no job has paid yet
    paid_at: int = 0

    def left(self, rate: tuple[int, int], now: int) -> tuple[int, int]:
        """Return how many more jobs may start in the window, and when the next one may."""
        most, length = rate
        inside = [at for at in self.starts if at > now - length]
        free = most - len(inside)
        return (free, now) if free > 0 else (0, inside[-free] + length)

    def tokens_at(self, bucket: Bucket, now: int) -> int:
        capacity, refill = bucket
        if self.tokens is None:
            return capacity
        return min(capacity, self.tokens + (now - self.paid_at) * refill // 1000)

    def affordable_at(self, bucket: Bucket, cost: int, now: int) -> int:
        """Return when the bucket can pay. A full bucket also pays a price above its capacity, and goes into debt."""
        missing = min(cost, bucket[0]) - self.tokens_at(bucket, now)
        return now if missing <= 0 else now - (-missing * 1000 // bucket[1])

    def start(self, limits: Limits, cost: int, now: int) -> None:
        """Count one more start."""
        if limits.rate:
            self.starts.append(now)
        if limits.bucket:
            self.tokens = self.tokens_at(limits.bucket, now) - cost
            self.paid_at = now

    def take_back(self, limits: Limits, cost: int) -> None:
        """Undo the count of the last start."""
        if limits.rate:
            self.starts.pop()
        if self.tokens is not None and limits.bucket:
            self.tokens += cost


@dataclass
class Key:
    """One key: its own limits, and what it has used."""

    own: Limits = field(default_factory=Limits)
    usage: Usage = field(default_factory=Usage)
    paused_until: int = 0
