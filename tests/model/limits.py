"""Limits: how many at once, how many in a time, how much of a bucket; of the queue, or of one of its keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Bucket = tuple[int, int]
"""Capacity, and refill a second; both in thousandths of a token."""


class Limits(NamedTuple):
    """None: not limited by that."""

    concurrency: int | None = None
    rate: tuple[int, int] | None = None  # so many starts in any window of so many ms
    bucket: Bucket | None = None

    def changed(self, name: str, value: str) -> Limits:
        """With one limit set as the calls write it; "" removes it."""
        words = tuple(int(word) for word in value.split())
        if name == "concurrency":
            return self._replace(concurrency=words[0] if words else None)
        pair = (words[0], words[1]) if words else None
        return self._replace(rate=pair) if name == "rate" else self._replace(bucket=pair)

    def over(self, common: Limits) -> Limits:
        """What is not set here is taken from there."""
        concurrency = self.concurrency if self.concurrency is not None else common.concurrency
        return Limits(concurrency, self.rate or common.rate, self.bucket or common.bucket)


@dataclass
class Usage:
    """What was used up under limits."""

    starts: list[int] = field(default_factory=list[int])
    tokens: int | None = None  # after the last payment; None: nobody ever paid
    paid_at: int = 0

    def left(self, rate: tuple[int, int], now: int) -> tuple[int, int]:
        """How many more may start in the window, and when the next one may."""
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
        """When the bucket can pay. It pays for what it cannot hold when it is full, into debt."""
        missing = min(cost, bucket[0]) - self.tokens_at(bucket, now)
        return now if missing <= 0 else now - (-missing * 1000 // bucket[1])

    def start(self, limits: Limits, cost: int, now: int) -> None:
        """One more started."""
        if limits.rate:
            self.starts.append(now)
        if limits.bucket:
            self.tokens = self.tokens_at(limits.bucket, now) - cost
            self.paid_at = now

    def take_back(self, limits: Limits, cost: int) -> None:
        """The last one did not start after all."""
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
