"""A schedule: the fire times of a job scheduler, their bounds, and the rule for missed ones.

This module computes values only and calls no server. Fire times are whole milliseconds since 1970.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple, TypeAlias, TypedDict, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from glidemq_async.durations import LAST_MS, from_ms, instant_to_ms, to_ms
from glidemq_async.options.validation import boolean, whole_number
from glidemq_async.schedules.cron import Cron, parse_cron

__all__ = [
    "CATCH_UP",
    "MAX_CATCH_UP",
    "FireTimes",
    "Missed",
    "Overlap",
    "Plan",
    "Schedule",
    "ScheduleDict",
    "ScheduleOptionsDict",
    "have_same_fire_times",
    "interval_ms",
    "jitter_ms",
    "schedule_text",
]

Missed: TypeAlias = Literal["skip", "fire-once", "fire-all"]
Overlap: TypeAlias = Literal["allow", "skip"]

MAX_CATCH_UP: Final = 1_000
CATCH_UP: Final = 100
"""Default maximum number of missed fire times for which `fire-all` adds jobs; the newest ones."""
_LONGEST_EXPRESSION: Final = 512
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))

PROMPT_MS: Final = 5_000
"""A fire time counts as on time if a process checks within this time after it. Another process needs some of this time
to take over after the first one has died."""
GRACE_MS: Final = 90_000
"""With "skip", the newest fire time is still fired if it is not older than this. A process needs less time to notice
that the other processes are gone."""
_MOST_COUNTED: Final = 1_000
"""Missed fire times of a cron expression are counted up to this number."""


class ScheduleOptionsDict(TypedDict, total=False):
    """The fields of a Schedule as keywords, without the fire times themselves."""

    tz: str
    start: datetime | None
    end: datetime | None
    limit: int | None
    missed: Missed
    catch_up: int
    overlap: Overlap
    immediately: bool
    after_completion: bool
    jitter: float | timedelta | None


class ScheduleDict(ScheduleOptionsDict, total=False):
    """The fields of a Schedule as keywords."""

    cron: str | None
    every: float | timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The fire times of a job scheduler. Give exactly one of `cron` and `every`.

    - `cron`: five fields, or six with seconds first; names, ranges, steps, lists, 7 for Sunday, `@daily` and similar.
      If both day fields are restricted, a day matches if one of them matches. `tz` is the IANA name of the time zone,
      by default UTC. It is only for `cron`.
    - `every`: the interval in seconds or as a timedelta, at least one millisecond. The fire times are
      `start + k * every`, even if some of them were fired late. Without `start`, intervals count from the first upsert,
      and the first fire time is one interval after it.
    - `start`, `end`: the bounds of the fire times, as datetimes with a time zone.
    - `limit`: the maximum number of fire times.
    - `missed`: the rule for fire times at which no process was present. "skip" (the default) ignores them, "fire-once"
      adds one job for the newest, and "fire-all" adds a job for each of the newest `catch_up` (1 to 1,000, by default
      100; only with "fire-all"). Nothing is missed if a process returns within 5 seconds. Otherwise all fire times
      before its return are missed, except the newest one if that is less than 90 seconds old. A fire time that becomes
      due while a process is present is never missed, even if it is fired late.
    - `immediately`: the first fire time is the time of the first upsert, instead of one interval later. Only with
      `every` and without `start`.
    - `after_completion`: the next fire time is `every` after the end of the previous job (completed, permanently
      failed, or removed), so runs never overlap and never accumulate. Only with `every`; `missed` and `overlap` do not
      apply.
    - `jitter`: seconds or a timedelta. The job of each fire time is delayed by a part of it, which is spread evenly
      over fire times and schedulers.
    - `overlap`: "skip" skips a fire time while the scheduler's last job has not ended; "allow" does not.

    Clock changes are handled as in Vixie cron: a fixed local time that is skipped runs at the first instant after the
    gap, and one that is repeated runs once. If the minute or the hour field begins with *, elapsed time counts.

    Raises TypeError or ValueError for an invalid schedule; the message names the option.
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
                raise ValueError(
                    f"tz={self.tz!r} applies only to cron=, because an interval has no time zone; leave out tz="
                )
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
            raise ValueError(
                "immediately=True needs every= without start=; to add one job now, call trigger_job_scheduler"
            )
        if not self.after_completion:
            return
        if self.every is None:
            raise ValueError(
                "after_completion=True needs every=, the time between the end of a job and the next fire time"
            )
        for name, value, default in (("missed", self.missed, "skip"), ("overlap", self.overlap, "allow")):
            if value != default:
                raise ValueError(f"{name}={value!r} and after_completion=True cannot be combined; leave out {name}=")

    def _check_catch_up(self) -> None:
        if self.missed == "fire-all" and self.catch_up is None:
            object.__setattr__(self, "catch_up", CATCH_UP)
        if self.catch_up is None:
            return
        _up_to("catch_up", self.catch_up, MAX_CATCH_UP)
        if self.missed != "fire-all":
            raise ValueError(
                f"catch_up={self.catch_up} applies only to missed='fire-all', not to missed={self.missed!r}"
            )

    def _check_bounds(self) -> None:
        start = None if self.start is None else instant_to_ms("start", self.start)
        end = None if self.end is None else instant_to_ms("end", self.end)
        if start is None or end is None:
            return
        if end < start:
            raise ValueError(f"end must not be before start, got start={self.start!r} and end={self.end!r}")
        if FireTimes(self, start).after(start - 1) is None:
            raise ValueError(f"there is no fire time from start={self.start!r} to end={self.end!r}")

    def next_after(self, instant: datetime, anchor: datetime | None = None) -> datetime | None:
        """Return the first fire time after an instant, None if there is none.

        `anchor` is the start of an interval without `start`; the default is the instant itself.
        """
        now = instant_to_ms("instant", instant)
        found = FireTimes(self, now if anchor is None else instant_to_ms("anchor", anchor)).after(now)
        return None if found is None else from_ms(found)


def interval_ms(schedule: Schedule) -> int | None:
    """Return `every` in milliseconds."""
    return None if schedule.every is None else to_ms("every", schedule.every)


def jitter_ms(schedule: Schedule) -> int:
    """Return the jitter in milliseconds."""
    return 0 if schedule.jitter is None else to_ms("jitter", schedule.jitter)


def schedule_text(schedule: Schedule) -> str:
    """Return a schedule for people: its cron expression with the time zone, or its interval."""
    if schedule.cron is not None:
        return f"{schedule.cron} ({schedule.tz})" if schedule.tz else schedule.cron
    ms = interval_ms(schedule) or 0
    # The largest unit that divides the interval: 90 seconds are neither 1 nor 2 minutes.
    size, unit = next(((size, unit) for size, unit in _UNITS if ms % size == 0), (1_000, "s"))
    return f"every {ms / size:g} {unit}"


def have_same_fire_times(one: Schedule, other: Schedule) -> bool:
    """Return whether two schedules have the same fire times, regardless of their other options."""
    return _timing(one) == _timing(other)


class Plan(NamedTuple):
    """The decision about due fire times: those to fire, in order, the number to skip, and the next one."""

    fire: tuple[int, ...]
    skipped: int
    next: int | None


class FireTimes:
    """The fire times of a schedule that was first stored at `anchor`."""

    def __init__(self, schedule: Schedule, anchor: int) -> None:
        self._schedule = schedule
        start = None if schedule.start is None else instant_to_ms("start", schedule.start)
        every = interval_ms(schedule) or 0
        self._every = every
        first = anchor if schedule.immediately else anchor + every
        self._first = start if start is not None else first if every else 0
        self._last = LAST_MS if schedule.end is None else instant_to_ms("end", schedule.end)
        self._cron = _expression(schedule)

    def after(self, instant: int) -> int | None:
        """Return the first fire time after an instant, None if there is none."""
        instant = max(instant, self._first - 1)
        if self._cron is None:
            found: int | None = self._first + ((instant - self._first) // self._every + 1) * self._every
        else:
            found = _ms(self._cron.after(instant // 1000))
        return found if found is not None and found <= self._last else None

    def upto(self, instant: int) -> int | None:
        """Return the last fire time at or before an instant, None if there is none."""
        instant = min(instant, self._last)
        if instant < self._first:
            return None
        if self._cron is None:
            return instant - (instant - self._first) % self._every
        found = _ms(self._cron.upto(instant // 1000))
        return found if found is not None and found >= self._first else None

    def between(self, after: int, upto: int) -> Iterator[int]:
        """Iterate over the fire times after `after` and not later than `upto`."""
        fire_time = self.after(after)
        while fire_time is not None and fire_time <= upto:
            yield fire_time
            fire_time = self.after(fire_time)

    def newest(self, after: int, upto: int, count: int) -> list[int]:
        """Return at most `count` of the newest fire times after `after` and not later than `upto`, in order."""
        # Backwards from the end, because only the newest are wanted: a scheduler that fires each second has 86,400 fire
        # times in a day of absence.
        found: deque[int] = deque()
        fire_time = self.upto(upto)
        while fire_time is not None and fire_time > after and len(found) < count:
            found.appendleft(fire_time)
            fire_time = self.upto(fire_time - 1)
        return list(found)

    def plan(self, due: int, now: int, since: int | None = None) -> Plan:
        """Return what to do now. `due` is the first fire time that was not fired yet.

        `since` is the start of the continuous presence of processes (default: now). Fire times after it are on time,
        however late they are fired.
        """
        # Two situations look the same here, a fire time in the past, and need opposite answers.
        #
        # - A process was present and is late: it was busy, or the list of schedulers is long. Every fire time is fired,
        #   however late.
        # - No process was present, for example during a deployment or an outage. The rule `missed` decides, because a
        #   thousand jobs of last night may be wanted or may be harmful.
        #
        # The server knows since when a process has been present without a gap (`since`). Short absences do not count
        # (`PROMPT_MS`), and with "skip" the newest fire time is still fired if it is recent (`GRACE_MS`). A restart of
        # the only process must not lose the job of a day.
        if self._schedule.after_completion:  # the next fire time depends on the end of this job
            return Plan((due,), 0, due + self._every) if due <= self._last else Plan((), 0, None)
        present = now if since is None else min(now, since)
        if present - due <= PROMPT_MS:
            prompt, following = self._on_time(due, now)
            if prompt:
                return Plan(prompt, 0, following)
            present = now
        missed, catch_up = self._schedule.missed, self._schedule.catch_up
        if missed == "fire-all":
            fire = self.newest(due - 1, present, catch_up or CATCH_UP)
        else:
            fire = self.newest(due - 1, present, 1)
            if missed == "skip" and fire and present - fire[0] > GRACE_MS:
                fire = []
        return Plan(tuple(fire), self._count(due, fire[0] if fire else present + 1), self.after(present))

    def _on_time(self, due: int, now: int) -> tuple[tuple[int, ...], int | None]:
        """Return at most a thousand fire times from `due` to `now`, and the next one."""
        found: list[int] = []
        fire_time = self.after(due - 1)
        while fire_time is not None and fire_time <= now and len(found) < MAX_CATCH_UP:
            found.append(fire_time)
            fire_time = self.after(fire_time)
        return tuple(found), fire_time

    def _count(self, first: int, before: int) -> int:
        """Return the number of fire times from `first` until before another instant; for cron at most a thousand."""
        if self._cron is None:
            return max(0, -((first - before) // self._every))
        after, upto = max(first, self._first) - 1, min(before - 1, self._last)
        return self._cron.count(after // 1000, upto // 1000, _MOST_COUNTED)


def _ms(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * 1000


def _timing(schedule: Schedule) -> tuple[object, ...]:
    return schedule.cron, interval_ms(schedule), schedule.tz, schedule.start, schedule.end, schedule.after_completion


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
            f"tz={name!r} is not a known time zone; use an IANA name such as Europe/Madrid, or install tzdata"
        ) from None


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _up_to(name: str, value: object, most: int) -> None:
    if whole_number(name, value, least=1) > most:
        raise ValueError(f"{name} must be from 1 to {most}, got {value!r}")
