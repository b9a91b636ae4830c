"""Cron expressions with the semantics of Vixie cron: the matching times in any time zone, forwards and backwards.

croniter parses the fields. The search is done here, on the local calendar, because clock changes and the combination of
the two day fields depend on the form of the expression, which croniter does not consider.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, cast

__all__ = ["Cron", "parse_cron"]

_DAY: Final = 86_400
_FORMS: Final[tuple[str, ...]] = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_LONG: Final[tuple[str, ...]] = (
    "0 0 1 1 *",
    "0 0 1 1 *",
    "0 0 1 * *",
    "0 0 * * 0",
    "0 0 * * *",
    "0 0 * * *",
    "0 * * * *",
)
_SHORT: Final[dict[str, str]] = dict(zip(_FORMS, _LONG, strict=True))
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final = ("second", "minute", "hour", "day of month", "month", "day of week")
_WHOLE: Final = (range(60), range(60), range(24), range(1, 32), range(1, 13), range(7))
_ITEM: Final = re.compile(r"(\*|(\w+)(?:-(\w+))?)(/[0-9]+)?")

_WEEKDAY: Final = 5
_LAST_WEEKDAY: Final = 7
_FIRST_ORDINAL: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - local time, on purpose
_FARTHEST_DAYS: Final = 50 * 366
# The largest backward clock change since 1970.
_LONGEST_OVERLAP: Final = 6 * 3600


@lru_cache(maxsize=4096)
def parse_cron(text: str, zone: tzinfo = UTC) -> Cron:
    """Parse an expression of five fields (minute, hour, day of month, month, day of week), or six with seconds first.

    Supports names, ranges (also wrapping ones such as 22-2), steps, lists, 0 or 7 for Sunday, and @yearly, @annually,
    @monthly, @weekly, @daily, @midnight, @hourly. If both day fields are restricted, a day matches if one of them
    matches. A day field that begins with * must always match. Raises ValueError for an invalid expression, and for one
    that matches no day at all.
    """
    words = _SHORT.get(text.strip().lower(), text).lower().split()
    if words and words[0].startswith("@"):
        raise ValueError(f"cron expression {text!r} is unknown; the short forms are {', '.join(_FORMS)}")
    if len(words) not in (5, 6):
        raise ValueError(
            f"cron expression {text!r} has {len(words)} fields; use minute, hour, day of month, month and day of "
            "week, optionally with seconds before them"
        )
    words = ["0", *words] if len(words) == 5 else words
    plain = [_checked(text, position, word) for position, word in enumerate(words)]
    # Imported on first use, because few processes need it and the import takes time at start-up.
    from croniter import CroniterError, croniter

    try:
        # By default croniter expects the seconds last, and then reports wrong field names in its errors.
        fields, _ = croniter.expand(" ".join(plain), second_at_beginning=True)
    except CroniterError as error:
        raise ValueError(f"cron expression {text!r} is not valid: {error}") from None
    minute, hour, day, month, weekday, second = (cast("list[int | str]", values) for values in fields)
    values = [_values(position, found) for position, found in enumerate((second, minute, hour, day, month, weekday))]
    stars = [word.startswith("*") for word in words]
    cron = Cron(text, zone, values, by_elapsed_time=stars[1] or stars[2], either_day=not (stars[3] or stars[5]))
    if cron.local_from(0) is None:
        raise ValueError(f"cron expression {text!r} matches no day, because such a date does not exist")
    return cron


def _checked(text: str, position: int, word: str) -> str:
    """Refuse croniter's extensions of cron (random and hashed values, years, ?), field by field."""
    return ",".join(_checked_item(text, position, item) for item in word.split(","))


# croniter reads three kinds of ranges wrongly: one value (1-1 gives every value), a range across the end with a step
# (22-4/3 gives 22 and 2 instead of 22, 1 and 4), and the rest of a week (1/2 leaves out Sunday). So croniter receives
# the values of a range. Its own errors show an expression with other fields, so wrong values are refused here.
def _checked_item(text: str, position: int, item: str) -> str:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise ValueError(f"cron expression {text!r}: {item!r} is not a valid {_FIELDS[position]}")
    _, first, last, step = match.groups()
    every = int(step[1:]) if step else 1
    if not every:
        raise ValueError(f"cron expression {text!r}: the step of {item!r} must be at least 1")
    if first is None:
        return item
    whole, top = _WHOLE[position], _LAST_WEEKDAY if position == _WEEKDAY else _WHOLE[position][-1]
    begin = _number(text, position, item, first)
    end = _number(text, position, item, last) if last else top if step else begin
    for value in (begin, end):
        if not whole.start <= value <= top:
            allowed = f"from {whole.start} to {top}"
            raise ValueError(f"cron expression {text!r}: {_FIELDS[position]} must be {allowed}, got {value}")
    if begin == _LAST_WEEKDAY > end and position == _WEEKDAY:
        begin = 0
    values = [*range(begin, end + 1)] or [*range(begin, whole.stop), *range(whole.start, end + 1)]
    return ",".join(map(str, values[::every]))


def _number(text: str, position: int, item: str, value: str) -> int:
    names = {4: _MONTHS, 5: _WEEKDAYS}.get(position, ())
    if value in names:
        return names.index(value) + (position == 4)
    if not value.isascii() or not value.isdigit():
        raise ValueError(f"cron expression {text!r}: {item!r} is not a valid {_FIELDS[position]}")
    return int(value)


def _values(position: int, found: list[int | str]) -> list[int]:
    if "*" in found:
        return list(_WHOLE[position])
    return sorted({cast("int", value) for value in found})


class Cron:
    """The times of one expression in one time zone, as whole seconds since 1970.

    If neither minute nor hour begins with *, each matching local time counts once: a time skipped in spring runs at the
    first instant after the gap, and a time repeated in autumn runs at its first occurrence. Otherwise (for example
    every hour, or every five minutes) elapsed time counts: nothing runs in the gap, and a repeated hour runs twice.
    """

    def __init__(
        self, text: str, zone: tzinfo, values: list[list[int]], *, by_elapsed_time: bool, either_day: bool
    ) -> None:
        self.text = text
        self._zone = zone
        self._seconds, minutes, hours, days, months, weekdays = values
        self._minutes = [hour * 3600 + minute * 60 for hour in hours for minute in minutes]
        self._days, self._months, self._weekdays = set(days), set(months), set(weekdays)
        self._by_elapsed_time = by_elapsed_time
        self._either_day = either_day

    def __repr__(self) -> str:
        return f"<Cron {self.text!r} in {self._zone}>"

    def after(self, instant: int) -> int | None:
        """Return the first match after an instant, None if there is none within fifty years."""
        return self._after_elapsed(instant) if self._by_elapsed_time else self._after_fixed(instant)

    def upto(self, instant: int) -> int | None:
        """Return the last match at or before an instant, None if there is none within fifty years."""
        return self._upto_elapsed(instant) if self._by_elapsed_time else self._upto_fixed(instant)

    def count(self, after: int, upto: int, most: int) -> int:
        """Return the number of matches after `after` and not later than `upto`, but at most `most`.

        Local days without a clock change are counted as a whole.
        """
        found, at = 0, after
        while at < upto and found < most:
            offset = self._offset(at)
            day = (at + offset) // _DAY
            last = min(upto, (day + 1) * _DAY - offset - 1)
            # A sweep may find many late schedulers and count up to 1,000 missed fire times of each. Whole days are
            # counted by arithmetic, and only days with a clock change are walked.
            if last > at and self._is_day(day) and self._is_steady(at, last, offset):
                found += self._times_upto(last + offset - day * _DAY) - self._times_upto(at + offset - day * _DAY)
                at = last
                continue
            fire_time = self.after(at)
            if fire_time is None or fire_time > upto:
                break
            found, at = found + 1, fire_time
        return min(found, most)

    def _is_steady(self, first: int, last: int, offset: int) -> bool:
        """Return True if no clock change affects the time between these instants."""
        return self._offset(first - _LONGEST_OVERLAP) == offset == self._offset(last + _LONGEST_OVERLAP)

    def _times_upto(self, second: int) -> int:
        """Return the number of times from the start of a matching day up to this second of the day, inclusive."""
        minute = second - second % 60
        at = bisect_left(self._minutes, minute)
        whole = at * len(self._seconds)
        if at < len(self._minutes) and self._minutes[at] == minute:
            whole += bisect_right(self._seconds, second % 60)
        return whole

    # -- fixed local times: each runs once ------------------------------------------------------------------------

    # Two readings of an expression exist on the days of a clock change, and Vixie cron uses both. `30 2 * * *` names a
    # local time: a person expects one run per day, also on the day without a 2:30 and on the day with two of them. `*/5
    # * * * *` names an interval: a person expects it to follow elapsed time. The form of the minute and hour fields
    # decides, which is why croniter's parsed values are not enough.
    #
    # Both searches walk the local calendar and then ask which instants have that local time: none in a gap, two in an
    # overlap. They look for a clock change within six hours around an instant (`_LONGEST_OVERLAP`), because a larger
    # change has not occurred since 1970.
    def _after_fixed(self, instant: int) -> int | None:
        local = self.local_from(instant + self._offset(instant) + 1)
        while local is not None:
            found = self._instant_of(local)
            if found > instant:
                return found
            local = self.local_from(local + 1)
        return None

    def _upto_fixed(self, instant: int) -> int | None:
        local = self._local_upto(max(instant + self._offset(instant), self._end_of_overlap(instant)))
        while local is not None:
            found = self._instant_of(local)
            if found <= instant:
                return found
            local = self._local_upto(local - 1)
        return None

    def _instant_of(self, local: int) -> int:
        """Return the instant of a local time: the first of two, or the first one after the gap that contains it."""
        before, after = self._offsets(local)
        if self._offset(local - before) == before:
            return local - before
        # The local time is in a gap: no instant has it. The job runs when the clock has been moved, which is the first
        # instant with the new offset.
        return self._change(local - after, local - before)

    # -- elapsed time: clock changes are ignored ------------------------------------------------------------------

    def _after_elapsed(self, instant: int) -> int | None:
        offset = self._offset(instant)
        here = instant + offset
        return min(
            filter(None, (self._repeated(instant, here, offset), self._first(self.local_from, here + 1, 1, instant))),
            default=None,
        )

    def _repeated(self, instant: int, here: int, offset: int) -> int | None:
        """Return the first match in the local times that repeat because the clock is set back soon."""
        later = self._offset(instant + _LONGEST_OVERLAP)
        if later >= offset:
            return None
        change = self._change(instant, instant + _LONGEST_OVERLAP)
        local = self.local_from(change + later)
        return local - later if local is not None and local <= here else None

    def _upto_elapsed(self, instant: int) -> int | None:
        here = instant + self._offset(instant)
        last = self._end_of_overlap(instant)
        found = self._first(self._local_upto, here, -1, instant)
        earlier = self._local_upto(last) if last > here else None
        if earlier is not None and earlier > here:
            first_time = earlier - self._offsets(earlier)[0]
            return max(first_time, found) if found is not None else first_time
        return found

    def _first(self, search: Callable[[int], int | None], local: int, step: int, instant: int) -> int | None:
        """Find the first local time from `local` on that exists after the instant, or (step -1) not after it."""
        at = search(local)
        while at is not None:
            there = [found for found in self._instants(at) if (found > instant) == (step > 0)]
            if there:
                return min(there) if step > 0 else max(there)
            at = search(at + step)
        return None

    def _instants(self, local: int) -> Iterator[int]:
        """Iterate over the instants with this local time: none in a gap, two in an overlap."""
        for offset in set(self._offsets(local)):
            if self._offset(local - offset) == offset:
                yield local - offset

    # -- the local calendar, in seconds since 1970 as if it were UTC ----------------------------------------------

    def local_from(self, local: int) -> int | None:
        """Return the first matching local time that is not before `local`."""
        day, second = divmod(local, _DAY)
        if self._is_day(day) and (found := self._time_from(second)) is not None:
            return day * _DAY + found
        next_day = next(filter(self._is_day, range(day + 1, day + _FARTHEST_DAYS)), None)
        return None if next_day is None else next_day * _DAY + self._minutes[0] + self._seconds[0]

    def _local_upto(self, local: int) -> int | None:
        day, second = divmod(local, _DAY)
        if self._is_day(day) and (found := self._time_upto(second)) is not None:
            return day * _DAY + found
        earlier = next(filter(self._is_day, range(day - 1, max(-1, day - _FARTHEST_DAYS), -1)), None)
        return None if earlier is None else earlier * _DAY + self._minutes[-1] + self._seconds[-1]

    def _is_day(self, day: int) -> bool:
        it = date.fromordinal(_FIRST_ORDINAL + day)
        if it.month not in self._months:
            return False
        fits, fits_week = it.day in self._days, it.isoweekday() % 7 in self._weekdays
        return fits or fits_week if self._either_day else fits and fits_week

    def _time_from(self, second: int) -> int | None:
        minute = second - second % 60
        at = bisect_left(self._minutes, minute)
        if at < len(self._minutes) and self._minutes[at] == minute:
            within = bisect_left(self._seconds, second % 60)
            if within < len(self._seconds):
                return minute + self._seconds[within]
            at += 1
        return self._minutes[at] + self._seconds[0] if at < len(self._minutes) else None

    def _time_upto(self, second: int) -> int | None:
        minute = second - second % 60
        at = bisect_right(self._minutes, minute) - 1
        if at >= 0 and self._minutes[at] == minute:
            within = bisect_right(self._seconds, second % 60) - 1
            if within >= 0:
                return minute + self._seconds[within]
            at -= 1
        return self._minutes[at] + self._seconds[-1] if at >= 0 else None

    # -- the clock of the time zone -------------------------------------------------------------------------------

    def _offset(self, instant: int) -> int:
        return _seconds_of(datetime.fromtimestamp(instant, self._zone).utcoffset())

    def _offsets(self, local: int) -> tuple[int, int]:
        """Return the two possible offsets of a local time. They differ in a gap (before, after) and in an overlap."""
        naive = (_EPOCH + timedelta(seconds=local)).replace(tzinfo=self._zone)
        return _seconds_of(naive.utcoffset()), _seconds_of(naive.replace(fold=1).utcoffset())

    def _change(self, low: int, high: int) -> int:
        """Return the first instant after `low` at which the offset changes; `high` is an upper bound."""
        offset = self._offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(middle) == offset:
                low = middle
            else:
                high = middle
        return high

    def _end_of_overlap(self, instant: int) -> int:
        """Return the last local time before the clock was set back recently, else 0."""
        before = self._offset(instant - _LONGEST_OVERLAP)
        if before <= self._offset(instant):
            return 0
        return self._change(instant - _LONGEST_OVERLAP, instant) + before - 1


def _seconds_of(offset: timedelta | None) -> int:
    return int(offset.total_seconds()) if offset is not None else 0
