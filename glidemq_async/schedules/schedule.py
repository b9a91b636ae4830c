"""A schedule: the instants at which a job is due (its slots), their bounds, and what becomes of those that are missed.

Only values live here, nothing talks to a server. Slots are whole milliseconds since 1970.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple, TypeAlias, TypedDict, cast, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgpack

from glidemq_async.durations import LAST_MS, from_ms, instant_to_ms, to_ms
from glidemq_async.errors import SerializationError
from glidemq_async.options.validation import boolean, whole_number
from glidemq_async.schedules.cron import Cron, parse_cron

__all__ = ["MAX_CATCH_UP", "Missed", "Overlap", "Plan", "Schedule", "Slots"]

Missed: TypeAlias = Literal["skip", "fire-once", "fire-all"]
Overlap: TypeAlias = Literal["allow", "skip"]

MAX_CATCH_UP: Final = 1_000
_CATCH_UP: Final = 100
"""How many missed slots `fire-all` makes up for unless `catch_up` says otherwise; the newest ones."""
_LONGEST_EXPRESSION: Final = 512

PROMPT_MS: Final = 5_000
"""A slot is on time if a process came no later than this after it: another process has taken over."""
GRACE_MS: Final = 90_000
"""The newest slot is missed if no process came within this time, which is longer than a process needs to notice that
no other one fires."""
_MOST_COUNTED: Final = 1_000
"""Missed slots of a cron expression are counted up to here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a job scheduler adds its jobs. Give exactly one of `cron` and `every`.

    - `cron`: five fields, or six with the seconds first; names, ranges, steps, lists, 7 for Sunday, `@daily` and the
      like. Two restricted day fields mean either of them. `tz` is the IANA name of its time zone, UTC by default;
      an interval has none.
    - `every`: seconds or a timedelta, at least a millisecond. Slots lie at `start + k * every` for ever, however late
      one of them was fired. Without `start` that is the instant of the first upsert, and the first slot comes one
      interval after it.
    - `start`, `end`: no slot before the one or after the other; aware datetimes.
    - `limit`: how many slots are fired in all.
    - `missed`: what to do about slots that passed while no process was there to fire them. "skip" (the default) lets
      them pass, "fire-once" adds one job for the newest of them, "fire-all" adds a job for each, for the newest
      `catch_up` of them (1 to 1,000, 100 by default; refused without "fire-all"). Nothing counts as missed if a process
      comes within 5 seconds. After that all slots do that passed until it came, but for the newest one in its first 90
      seconds. A slot that becomes due while a process is there is never missed, however slow the firing is.
    - `immediately`: the first slot is the instant of the first upsert instead of one interval after it. With `every`,
      without `start`.
    - `after_completion`: the next slot comes `every` after the end of the last slot's job (completed, failed for good
      or removed), so runs never overlap and never queue up. With `every`; `missed` and `overlap` do not concern it.
    - `jitter`: seconds or a timedelta; the job of each slot is delayed by a part of it, spread evenly over slots and
      schedulers.
    - `overlap`: "skip" passes over a slot while the scheduler's last job has not ended; "allow" adds it.

    At a change of the clock cron jobs behave as Vixie cron's do: a fixed local time that is skipped runs at the first
    instant after the gap, one that comes twice runs once; jobs whose minute or hour begins with * go by elapsed time.

    Raises TypeError or ValueError for what is no schedule; the message names the option.
    """

    cron: str | None = None
    every: float | timedelta | None = None
    tz: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    limit: int | None = None
    missed: Missed = "skip"
    catch_up: int | None = None
    overlap: Overlap = "allow"
    immediately: bool = False
    after_completion: bool = False
    jitter: float | timedelta | None = None

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.every is None):
            raise ValueError(f"give exactly one of cron and every, got cron={self.cron!r} and every={self.every!r}")
        if self.every is not None:
            object.__setattr__(self, "every", to_ms("every", self.every, allow_zero=False) / 1000)
            if self.tz is not None:
                raise ValueError(f"tz={self.tz!r} concerns cron only: an interval of seconds has no time zone")
        elif self.tz is None:
            object.__setattr__(self, "tz", "UTC")
        _one_of("missed", self.missed, get_args(Missed))
        _one_of("overlap", self.overlap, get_args(Overlap))
        self._check_catch_up()
        if self.limit is not None:
            whole_number("limit", self.limit, least=1)
        if self.jitter is not None:
            object.__setattr__(self, "jitter", to_ms("jitter", self.jitter) / 1000)
        self._check_interval()
        _expression(self)
        self._check_bounds()

    def _check_interval(self) -> None:
        boolean("immediately", self.immediately)
        boolean("after_completion", self.after_completion)
        if self.immediately and (self.every is None or self.start is not None):
            raise ValueError("immediately=True needs every= without start=; to add one job now, trigger the scheduler")
        if not self.after_completion:
            return
        if self.every is None:
            raise ValueError("after_completion=True needs every=: how long after the end of a job the next slot comes")
        for name, value, default in (("missed", self.missed, "skip"), ("overlap", self.overlap, "allow")):
            if value != default:
                raise ValueError(f"{name}={value!r} and after_completion=True exclude each other: leave out {name}=")

    def _check_catch_up(self) -> None:
        if self.missed == "fire-all" and self.catch_up is None:
            object.__setattr__(self, "catch_up", _CATCH_UP)
        if self.catch_up is None:
            return
        _up_to("catch_up", self.catch_up, MAX_CATCH_UP)
        if self.missed != "fire-all":
            raise ValueError(f"catch_up={self.catch_up} concerns missed='fire-all' only, got missed={self.missed!r}")

    def _check_bounds(self) -> None:
        start = None if self.start is None else instant_to_ms("start", self.start)
        end = None if self.end is None else instant_to_ms("end", self.end)
        if start is None or end is None:
            return
        if end < start:
            raise ValueError(f"end must not be before start, got start={self.start!r} and end={self.end!r}")
        if Slots(self, start).after(start - 1) is None:
            raise ValueError(f"there is no slot from start={self.start!r} to end={self.end!r}")

    @property
    def every_ms(self) -> int | None:
        """The interval in milliseconds."""
        return None if self.every is None else to_ms("every", self.every)

    @property
    def jitter_ms(self) -> int:
        """The jitter in milliseconds."""
        return 0 if self.jitter is None else to_ms("jitter", self.jitter)

    def next_after(self, instant: datetime, anchor: datetime | None = None) -> datetime | None:
        """Return the first slot after an instant, None when there is none.

        `anchor` is where an interval without `start` begins; by default the instant itself.
        """
        now = instant_to_ms("instant", instant)
        found = Slots(self, now if anchor is None else instant_to_ms("anchor", anchor)).after(now)
        return None if found is None else from_ms(found)

    def same_slots(self, other: Schedule) -> bool:
        """Return whether another schedule has the same slots, whatever it does about them."""
        return _timing(self) == _timing(other)

    def to_wire(self, anchor: int) -> bytes:
        """Return the stored form; `anchor` is the instant of the first upsert."""
        wire: _Wire = {"a": anchor, "m": self.missed, "u": self.catch_up or _CATCH_UP, "o": self.overlap}
        if self.cron is not None:
            wire["c"], wire["z"] = self.cron, self.tz or "UTC"
        if (every := self.every_ms) is not None:
            wire["e"] = every
        if self.start is not None:
            wire["s"] = instant_to_ms("start", self.start)
        if self.end is not None:
            wire["f"] = instant_to_ms("end", self.end)
        if self.limit is not None:
            wire["n"] = self.limit
        if self.immediately:
            wire["i"] = True
        if self.after_completion:
            wire["d"] = True
        if self.jitter_ms:
            wire["j"] = self.jitter_ms
        return msgpack.packb(wire)

    @classmethod
    def from_wire(cls, data: bytes) -> tuple[Schedule, int]:
        """Return what `to_wire` stored, and the anchor. Raises SerializationError for anything else."""
        try:
            wire = cast("_Wire", msgpack.unpackb(data))
            schedule = cls(
                cron=wire.get("c"),
                every=wire["e"] / 1000 if "e" in wire else None,
                tz=wire.get("z") if "c" in wire else None,
                start=from_ms(wire["s"]) if "s" in wire else None,
                end=from_ms(wire["f"]) if "f" in wire else None,
                limit=wire.get("n"),
                missed=wire["m"],
                catch_up=wire["u"] if wire["m"] == "fire-all" else None,
                overlap=wire["o"],
                immediately=wire.get("i", False),
                after_completion=wire.get("d", False),
                jitter=wire["j"] / 1000 if "j" in wire else None,
            )
            return schedule, wire["a"]
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise SerializationError(f"not a stored schedule: {data[:40]!r} ({error})") from error


class _Bounds(TypedDict, total=False):
    c: str
    z: str
    e: int
    s: int
    f: int
    n: int
    i: bool
    d: bool
    j: int


class _Wire(_Bounds):
    a: int
    m: Missed
    u: int
    o: Overlap


class Plan(NamedTuple):
    """What to do about the slots that are due: fire these, in order, pass over so many, go on with `next`."""

    fire: tuple[int, ...]
    skipped: int
    next: int | None


class Slots:
    """The slots of a schedule that was first stored at `anchor`."""

    def __init__(self, schedule: Schedule, anchor: int) -> None:
        self._schedule = schedule
        start = None if schedule.start is None else instant_to_ms("start", schedule.start)
        every = schedule.every_ms or 0
        self._every = every
        first = anchor if schedule.immediately else anchor + every
        self._first = start if start is not None else first if every else 0
        self._last = LAST_MS if schedule.end is None else instant_to_ms("end", schedule.end)
        self._cron = _expression(schedule)

    def after(self, instant: int) -> int | None:
        """Return the first slot after an instant, None when there is none."""
        instant = max(instant, self._first - 1)
        if self._cron is None:
            found: int | None = self._first + ((instant - self._first) // self._every + 1) * self._every
        else:
            found = _ms(self._cron.after(instant // 1000))
        return found if found is not None and found <= self._last else None

    def upto(self, instant: int) -> int | None:
        """Return the last slot at or before an instant, None when there is none."""
        instant = min(instant, self._last)
        if instant < self._first:
            return None
        if self._cron is None:
            return instant - (instant - self._first) % self._every
        found = _ms(self._cron.upto(instant // 1000))
        return found if found is not None and found >= self._first else None

    def between(self, after: int, upto: int) -> Iterator[int]:
        """Iterate over the slots after an instant and not after another one."""
        slot = self.after(after)
        while slot is not None and slot <= upto:
            yield slot
            slot = self.after(slot)

    def newest(self, after: int, upto: int, count: int) -> list[int]:
        """Return the newest of the slots after an instant and not after another one, at most `count`, in order."""
        found: deque[int] = deque()
        slot = self.upto(upto)
        while slot is not None and slot > after and len(found) < count:
            found.appendleft(slot)
            slot = self.upto(slot - 1)
        return list(found)

    def plan(self, due: int, now: int, since: int | None = None) -> Plan:
        """Return what to do now, `due` being the first slot that nobody has fired yet.

        `since` is the instant since which a process has been present without a gap (default: now). Slots that became
        due after it are on time, however long their firing takes.
        """
        if self._schedule.after_completion:  # where the next slot is depends on the end of this one's job
            return Plan((due,), 0, due + self._every) if due <= self._last else Plan((), 0, None)
        present = now if since is None else min(now, since)
        if present - due <= PROMPT_MS:
            prompt, following = self._on_time(due, now)
            if prompt:
                return Plan(prompt, 0, following)
            present = now
        missed, catch_up = self._schedule.missed, self._schedule.catch_up
        if missed == "fire-all":
            fire = self.newest(due - 1, present, catch_up or _CATCH_UP)
        else:
            fire = self.newest(due - 1, present, 1)
            if missed == "skip" and fire and present - fire[0] > GRACE_MS:
                fire = []
        return Plan(tuple(fire), self._count(due, fire[0] if fire else present + 1), self.after(present))

    def _on_time(self, due: int, now: int) -> tuple[tuple[int, ...], int | None]:
        """Return the slots from `due` to `now`, at most a thousand, and the one after them."""
        found: list[int] = []
        slot = self.after(due - 1)
        while slot is not None and slot <= now and len(found) < MAX_CATCH_UP:
            found.append(slot)
            slot = self.after(slot)
        return tuple(found), slot

    def _count(self, first: int, before: int) -> int:
        """Return how many slots lie from `first` on before another instant; for cron at most a thousand."""
        if self._cron is None:
            return max(0, -((first - before) // self._every))
        after, upto = max(first, self._first) - 1, min(before - 1, self._last)
        return self._cron.count(after // 1000, upto // 1000, _MOST_COUNTED)


def _ms(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * 1000


def _timing(schedule: Schedule) -> tuple[object, ...]:
    return schedule.cron, schedule.every_ms, schedule.tz, schedule.start, schedule.end, schedule.after_completion


def _expression(schedule: Schedule) -> Cron | None:
    if schedule.cron is None:
        return None
    if not isinstance(schedule.cron, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"cron must be a str, not {schedule.cron!r}")
    if len(schedule.cron) > _LONGEST_EXPRESSION:
        raise ValueError(f"cron is {len(schedule.cron)} characters long, at most {_LONGEST_EXPRESSION} are allowed")
    return parse_cron(schedule.cron, _zone("UTC" if schedule.tz is None else schedule.tz))


def _zone(name: str) -> ZoneInfo:
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"tz must be the IANA name of a time zone, not {name!r}")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"tz={name!r} is not known here: give an IANA name such as Europe/Madrid, or install tzdata"
        ) from None


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _up_to(name: str, value: object, most: int) -> None:
    if whole_number(name, value, least=1) > most:
        raise ValueError(f"{name} must be from 1 to {most}, got {value!r}")
