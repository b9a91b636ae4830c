"""The limits that a history is held against: slots, windows, token buckets and pauses, of a key or of the queue.

Times are milliseconds of the server's clock, tokens are thousandths. A limit may change while jobs run; which one holds
at a start is known from the order of the events, but for the moment between the words "a change comes" and "it came":
there the more permissive of both counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

LimitName: TypeAlias = Literal["concurrency", "rate", "bucket"]
#: concurrency: (most,)   rate: (most, length)   bucket: (capacity, refill a second)
Figures: TypeAlias = tuple[int, ...]


class Change(NamedTuple):
    """A limit that is set at run time; the target "" is the queue."""

    target: str
    limit: LimitName
    figures: Figures


class Setting:
    """One limit of one target: what surely holds, or what may while a change is under way."""

    def __init__(self, *figures: Figures) -> None:
        self.possible = list(figures)
        self.changes = 0

    def comes(self, figures: Figures) -> None:
        """From now on this may hold too."""
        self.possible.append(figures)
        self.changes += 1

    def came(self, figures: Figures) -> None:
        """Nothing else holds any more."""
        self.possible = [figures]

    @property
    def is_sure(self) -> bool:
        """Whether nothing is under way."""
        return len(set(self.possible)) == 1


@dataclass
class Peak:
    """How close a history came to a limit: the most that was seen, and how often a start filled the limit."""

    most: float = 0
    filled: int = 0

    def note(self, seen: float, limit: float) -> None:
        """Count one start in."""
        self.most = max(self.most, seen)
        self.filled += seen >= limit


@dataclass
class Peaks:
    """How close a history came to its limits, by group of targets and limit."""

    found: dict[tuple[str, LimitName], Peak] = field(default_factory=dict[tuple[str, LimitName], Peak])

    def note(self, group: str, limit: LimitName, seen: float, most: float) -> None:
        """Count one start in."""
        self.found.setdefault((group, limit), Peak()).note(seen, most)


class Broken(NamedTuple):
    """A limit that a start broke, and by how much."""

    kind: str
    seen: str


class Bounds:
    """The limits of one target, and what runs and started under them."""

    def __init__(self, target: str, peaks: Peaks, concurrency: Figures | None) -> None:
        self.running: set[str] = set()
        self.closed_until = 0
        self._group = target.partition("-")[0] or "queue"
        self._peaks = peaks
        self._settings: dict[LimitName, Setting] = {}
        if concurrency is not None:
            self._settings["concurrency"] = Setting(concurrency)
        self._starts: deque[int] = deque()
        self._bucket = _BucketHistory()

    def setting(self, limit: LimitName) -> Setting:
        """One of the limits, to change it."""
        return self._settings.setdefault(limit, Setting())

    @property
    def one_at_a_time(self) -> bool:
        """Whether at this moment surely no two may run at once."""
        held = self._settings.get("concurrency")
        return held is not None and set(held.possible) == {(1,)}

    @property
    def always_one(self) -> bool:
        """Whether that has held from the beginning."""
        return self.one_at_a_time and not self._settings["concurrency"].changes

    def start(self, job: str, cost: int, now: int) -> Iterator[Broken]:
        """A job starts: what it breaks."""
        self.running.add(job)
        if now < self.closed_until:
            yield Broken("pause", f"started {self.closed_until - now} ms before the end of a pause")
        for limit, setting in self._settings.items():
            if not setting.possible:
                continue
            check = {"concurrency": self._take_slot, "rate": self._pass_window, "bucket": self._pay}[limit]
            yield from check(setting, cost, now)

    def _take_slot(self, setting: Setting, _cost: int, _now: int) -> Iterator[Broken]:
        most = max(most for (most,) in setting.possible)
        self._peaks.note(self._group, "concurrency", len(self.running), most)
        if len(self.running) > most:
            yield Broken("concurrency", f"{len(self.running)} run at once, {most} may")

    def _pass_window(self, setting: Setting, _cost: int, now: int) -> Iterator[Broken]:
        most = max(most for most, _ in setting.possible)
        length = min(length for _, length in setting.possible)
        self._starts.append(now)
        while self._starts[0] <= now - length:
            self._starts.popleft()
        self._peaks.note(self._group, "rate", len(self._starts), most)
        if len(self._starts) > most:
            yield Broken("rate", f"{len(self._starts)} starts in {length} ms, {most} may")

    def _pay(self, setting: Setting, cost: int, now: int) -> Iterator[Broken]:
        if not setting.is_sure:
            # What a bucket holds across a change is no promise: the proof begins anew after it.
            self._bucket = _BucketHistory()
            return
        capacity, refill = setting.possible[0]
        spent = self._bucket.pay(cost, capacity, refill, now)
        # A bucket is known to a whole job only: who cannot be paid by what is left has met the limit.
        self._peaks.note(self._group, "bucket", spent, capacity - cost)
        if spent > capacity:
            yield Broken("bucket", f"{spent:g} thousandths of tokens were spent at once, the bucket holds {capacity}")


class _BucketHistory:
    """Whether in every interval of starts the costs fit what a bucket can have held and got.

    Before the first of an interval it held its capacity at most, so up to the last start all costs and what that one
    needs (its cost, but a full bucket pays for more, into debt) must not exceed the capacity and what came in between.
    With S(i) = costs before i less the refill until i that is: S(last) + need - S(first) <= capacity, for the lowest
    S(first) so far.
    """

    def __init__(self) -> None:
        self._costs = 0
        self._lowest: float | None = None
        self._began = 0
        self._regime: tuple[int, int] | None = None

    def pay(self, cost: int, capacity: int, refill: int, now: int) -> float:
        """Pay for a start; answer the most that any interval up to it spent beyond its refill."""
        if self._regime != (capacity, refill):
            self._regime, self._costs, self._lowest, self._began = (capacity, refill), 0, None, now
        balance = self._costs - refill * (now - self._began) / 1000
        self._lowest = balance if self._lowest is None else min(self._lowest, balance)
        self._costs += cost
        return round(balance + min(cost, capacity) - self._lowest, 3)
