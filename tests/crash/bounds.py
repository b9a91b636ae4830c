"""The limits that a history is checked against: concurrency, windows, token buckets and pauses, of a key or of the
queue.

Times are milliseconds of the server's clock, tokens are thousandths. A limit may change while jobs run. The order of
the events shows which limit applies to a start. Between the two events around a change, the check uses the more
permissive of both limits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

LimitName: TypeAlias = Literal["concurrency", "rate", "bucket"]
#: concurrency: (most,)   rate: (most, length)   bucket: (capacity, refill per second)
Figures: TypeAlias = tuple[int, ...]


class Change(NamedTuple):
    """A limit that is set at run time. The target "" is the queue."""

    target: str
    limit: LimitName
    figures: Figures


class Setting:
    """One limit of one target: the value that applies, or both values while a change is in progress."""

    def __init__(self, *figures: Figures) -> None:
        self.possible = list(figures)
        self.changes = 0

    def begin_change(self, figures: Figures) -> None:
        """Note that this value may also apply from now on."""
        self.possible.append(figures)
        self.changes += 1

    def end_change(self, figures: Figures) -> None:
        """Note that only the latest value applies."""
        self.possible = [figures]

    @property
    def is_sure(self) -> bool:
        """Return whether no change is in progress."""
        return len(set(self.possible)) == 1


@dataclass
class Peak:
    """How close a history came to a limit: the highest value, and how often a start reached the limit."""

    most: float = 0
    filled: int = 0

    def note(self, seen: float, limit: float) -> None:
        """Count one start."""
        self.most = max(self.most, seen)
        self.filled += seen >= limit


@dataclass
class Peaks:
    """How close a history came to its limits, by group of targets and limit."""

    found: dict[tuple[str, LimitName], Peak] = field(default_factory=dict[tuple[str, LimitName], Peak])

    def note(self, group: str, limit: LimitName, seen: float, most: float) -> None:
        """Count one start."""
        self.found.setdefault((group, limit), Peak()).note(seen, most)


class Broken(NamedTuple):
    """A limit that a start broke, and by how much."""

    kind: str
    seen: str


class Bounds:
    """The limits of one target, and its jobs that run or have started."""

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
        """Return one of the limits, in order to change it."""
        return self._settings.setdefault(limit, Setting())

    @property
    def one_at_a_time(self) -> bool:
        """Return whether it is certain that no two jobs may run at the same time now."""
        held = self._settings.get("concurrency")
        return held is not None and set(held.possible) == {(1,)}

    @property
    def always_one(self) -> bool:
        """Return whether that has been certain from the beginning."""
        return self.one_at_a_time and not self._settings["concurrency"].changes

    def start(self, job: str, cost: int, now: int) -> Iterator[Broken]:
        """Check the start of a job; yield the limits that it breaks."""
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
            yield Broken("concurrency", f"{len(self.running)} jobs run concurrently, the limit is {most}")

    def _pass_window(self, setting: Setting, _cost: int, now: int) -> Iterator[Broken]:
        most = max(most for most, _ in setting.possible)
        length = min(length for _, length in setting.possible)
        self._starts.append(now)
        while self._starts[0] <= now - length:
            self._starts.popleft()
        self._peaks.note(self._group, "rate", len(self._starts), most)
        if len(self._starts) > most:
            yield Broken("rate", f"{len(self._starts)} starts in {length} ms, the limit is {most}")

    def _pay(self, setting: Setting, cost: int, now: int) -> Iterator[Broken]:
        if not setting.is_sure:
            # The content of a bucket after a change is not specified, so the check of the bucket begins again.
            self._bucket = _BucketHistory()
            return
        capacity, refill = setting.possible[0]
        spent = self._bucket.pay(cost, capacity, refill, now)
        # A bucket pays for complete jobs only. It has reached its limit when the rest cannot pay for the next job.
        self._peaks.note(self._group, "bucket", spent, capacity - cost)
        if spent > capacity:
            yield Broken(
                "bucket", f"{spent:g} thousandths of tokens were spent in one burst, the bucket holds {capacity}"
            )


class _BucketHistory:
    """Checks in every interval of starts that the costs fit the content and refill of a bucket.

    Before the first start of an interval the bucket contained at most its capacity. So all costs before the last start,
    plus the tokens that the last start needs, must not exceed the capacity plus the refill of the interval. (A full
    bucket also pays a cost above its capacity, into debt.) With S(i) = the costs before i minus the refill until i, the
    condition is S(last) + need - S(first) <= capacity, for the lowest S(first) so far.
    """

    def __init__(self) -> None:
        self._costs = 0
        self._lowest: float | None = None
        self._began = 0
        self._regime: tuple[int, int] | None = None

    def pay(self, cost: int, capacity: int, refill: int, now: int) -> float:
        """Pay for a start; return the highest excess of spending over refill of any interval up to it."""
        if self._regime != (capacity, refill):
            self._regime, self._costs, self._lowest, self._began = (capacity, refill), 0, None, now
        balance = self._costs - refill * (now - self._began) / 1000
        self._lowest = balance if self._lowest is None else min(self._lowest, balance)
        self._costs += cost
        return round(balance + min(cost, capacity) - self._lowest, 3)
