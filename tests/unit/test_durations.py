"""Conversion of seconds, timedeltas and times to milliseconds and back."""

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from glidemq_async.durations import LAST_MS, LONGEST_SECONDS, from_ms, instant_to_ms, to_ms


@given(st.integers(0, LONGEST_SECONDS * 1000))
def test_milliseconds_survive_the_conversion_to_seconds(milliseconds: int) -> None:
    # A double of seconds is exact to the millisecond for the first thousands of years.
    if milliseconds < 2**47:
        assert to_ms("delay", milliseconds / 1000) == milliseconds
    assert to_ms("delay", milliseconds // 1000) == milliseconds // 1000 * 1000


@given(st.timedeltas(timedelta(0), timedelta(days=36500)))
@example(timedelta(days=11303, microseconds=1))
def test_timedeltas_are_rounded_up(value: timedelta) -> None:
    rounded = timedelta(milliseconds=to_ms("delay", value))
    assert timedelta(0) <= rounded - value <= timedelta(milliseconds=1)


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (1e-9, 1), (0.07, 70), (0.29, 290), (1.0001, 1001)])
def test_fractions_are_rounded_up_but_not_by_rounding_errors(value: float, expected: int) -> None:
    assert to_ms("delay", value) == expected


@pytest.mark.parametrize(
    "value", [-1, -0.001, math.nan, math.inf, -math.inf, timedelta(seconds=-1), 1e300, 10**400, 10**12]
)
def test_bad_durations_are_refused_by_name(value: float | timedelta) -> None:
    with pytest.raises(ValueError, match="timeout "):
        to_ms("timeout", value)


@pytest.mark.parametrize("value", [True, "5", None, b"1", 1j])
def test_wrong_types_are_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError, match="timeout must be seconds"):
        to_ms("timeout", cast("float", value))


@pytest.mark.parametrize("value", [0, 0.0, timedelta(0)])
def test_zero_is_refused_where_it_is_meaningless(value: float | timedelta) -> None:
    assert to_ms("delay", value) == 0
    with pytest.raises(ValueError, match="ttl must be more than zero"):
        to_ms("ttl", value, allow_zero=False)


def test_the_longest_duration_from_now_ends_at_a_valid_time() -> None:
    longest = instant_to_ms("at", datetime.now(tz=UTC)) + to_ms("delay", LONGEST_SECONDS)
    assert longest < LAST_MS
    assert from_ms(longest).year > 3000
    with pytest.raises(ValueError, match=r"delay must be at most 31557600000 seconds \(1,000 years\)"):
        to_ms("delay", LONGEST_SECONDS + 1)


@pytest.mark.smoke
@given(st.integers(0, 253_402_300_799_999))
def test_times_survive_the_conversion(milliseconds: int) -> None:
    instant = from_ms(milliseconds)
    assert instant.tzinfo is UTC
    assert instant_to_ms("at", instant) == milliseconds


def test_the_zone_of_a_time_counts() -> None:
    there = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert from_ms(instant_to_ms("at", there)) == datetime(2030, 1, 1, 10, tzinfo=UTC)


def test_times_are_rounded_up() -> None:
    assert instant_to_ms("at", datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)) == 1


def test_bad_times_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="at must have a time zone"):
        instant_to_ms("at", datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="at must not be before 1970"):
        instant_to_ms("at", datetime(1969, 1, 1, tzinfo=UTC))
    with pytest.raises(TypeError, match="at must be a datetime, not 5"):
        instant_to_ms("at", cast("datetime", 5))
