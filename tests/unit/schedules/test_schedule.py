"""Schedules: their fire times and bounds, refusals, and the treatment of missed fire times."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glidemq_async.errors import SerializationError
from glidemq_async.schedules.schedule import MAX_CATCH_UP, FireTimes, Schedule, have_same_fire_times
from glidemq_async.schedules.stored_schedule import read_schedule, schedule_form

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
T = int(NOON.timestamp()) * 1000
HOUR = 3_600_000


@given(st.integers(1, 10**10), st.integers(0, 10**12), st.integers(0, 10**13))
def test_intervals_never_drift(every: int, anchor: int, instant: int) -> None:
    fire_times = FireTimes(Schedule(every=timedelta(milliseconds=every)), anchor)
    found = fire_times.after(instant)
    assert found is not None
    assert (found - anchor) % every == 0
    assert instant < found
    assert found <= max(instant, anchor) + every
    assert fire_times.upto(found) == found
    assert fire_times.upto(found - 1) == (found - every if found - every > anchor else None)


def test_an_interval_without_start_begins_one_interval_after_its_first_upsert() -> None:
    assert list(FireTimes(Schedule(every=10), T).between(T - 50_000, T + 30_000)) == [
        T + 10_000,
        T + 20_000,
        T + 30_000,
    ]


def test_an_interval_with_start_begins_there() -> None:
    fire_times = FireTimes(Schedule(every=10, start=NOON), T - HOUR)
    assert list(fire_times.between(0, T + 20_000)) == [T, T + 10_000, T + 20_000]


def test_start_and_end_are_fire_times_themselves() -> None:
    schedule = Schedule(cron="0 * * * *", start=NOON, end=NOON + timedelta(hours=2))
    fire_times = FireTimes(schedule, 0)
    assert list(fire_times.between(0, T + 10 * HOUR)) == [T, T + HOUR, T + 2 * HOUR]
    assert fire_times.upto(T - 1) is None
    assert fire_times.upto(T + 9 * HOUR) == T + 2 * HOUR
    assert fire_times.after(T + 2 * HOUR) is None


@pytest.mark.parametrize("schedule", [Schedule(cron="*/7 * * * *"), Schedule(every=420)])
def test_the_latest_fire_times_are_the_last_ones(schedule: Schedule) -> None:
    fire_times = FireTimes(schedule, T)
    everything = list(fire_times.between(T, T + 5 * HOUR))
    assert fire_times.newest(T, T + 5 * HOUR, 10) == everything[-10:]
    assert fire_times.newest(T, T + 5 * HOUR, 10**6) == everything


def test_a_fire_time_that_is_due_on_time_fires_with_every_policy() -> None:
    for missed in ("skip", "fire-once", "fire-all"):
        fire_times = FireTimes(Schedule(every=1, missed=missed), T)
        assert fire_times.plan(T + 1_000, T + 1_000) == ((T + 1_000,), 0, T + 2_000)
        assert fire_times.plan(T + 1_000, T + 3_100) == ((T + 1_000, T + 2_000, T + 3_000), 0, T + 4_000)


def test_fire_times_during_the_presence_of_a_process_are_on_time() -> None:
    fire_times = FireTimes(Schedule(every=60), T)
    late = T + 10 * 60_000
    assert fire_times.plan(T + 480_000, late, T + 480_000) == ((T + 480_000, T + 540_000, T + 600_000), 0, T + 660_000)
    # Missed fire times depend on the time at which a process came. The rest is left for the next plan.
    assert fire_times.plan(T + 60_000, late, T + 430_000) == ((T + 420_000,), 6, T + 480_000)
    assert fire_times.plan(T + 480_000, late, T + 430_000).skipped == 0


def test_skip_ignores_all_but_the_latest_fire_time() -> None:
    assert FireTimes(Schedule(every=10), T).plan(T + 10_000, T + 64_000) == ((T + 60_000,), 5, T + 70_000)


def test_skip_ignores_the_latest_fire_time_too_when_it_is_long_past() -> None:
    fire_times = FireTimes(Schedule(cron="0 * * * *"), T)
    assert fire_times.plan(T + HOUR, T + HOUR + 90_000) == ((T + HOUR,), 0, T + 2 * HOUR)
    assert fire_times.plan(T + HOUR, T + HOUR + 90_001) == ((), 1, T + 2 * HOUR)
    assert fire_times.plan(T + HOUR, T + 5 * HOUR + 90_001) == ((), 5, T + 6 * HOUR)


def test_fire_once_fires_the_latest_time() -> None:
    fire_times = FireTimes(Schedule(cron="0 * * * *", missed="fire-once"), T)
    assert fire_times.plan(T + HOUR, T + 5 * HOUR + 1_800_000) == ((T + 5 * HOUR,), 4, T + 6 * HOUR)


def test_fire_all_fires_every_time_up_to_its_cap() -> None:
    late = T + 5 * HOUR + 1_800_000
    hours = tuple(T + n * HOUR for n in range(1, 6))
    fire_times = FireTimes(Schedule(cron="0 * * * *", missed="fire-all"), T)
    assert fire_times.plan(T + HOUR, late) == (hours, 0, T + 6 * HOUR)
    fire_times = FireTimes(Schedule(cron="0 * * * *", missed="fire-all", catch_up=2), T)
    assert fire_times.plan(T + HOUR, late) == (hours[-2:], 3, T + 6 * HOUR)


def test_a_plan_ends_with_the_schedule() -> None:
    fire_times = FireTimes(Schedule(every=10, end=NOON + timedelta(seconds=20), missed="fire-all"), T)
    assert fire_times.plan(T + 10_000, T + HOUR) == ((T + 10_000, T + 20_000), 0, None)


def test_a_plan_is_bounded_after_years_of_seconds() -> None:
    fire_times = FireTimes(Schedule(cron="* * * * * *", missed="fire-all", catch_up=MAX_CATCH_UP), T)
    plan = fire_times.plan(T, T + 10 * 365 * 24 * HOUR)
    assert len(plan.fire) == plan.skipped == 1_000
    fire_times = FireTimes(Schedule(every=0.001), T)
    assert fire_times.plan(T + 1, T + 1_000_000_000).skipped == 999_999_999


@given(st.sampled_from(["skip", "fire-once", "fire-all"]), st.integers(0, 10**8), st.integers(1, 1_000))
def test_a_plan_covers_every_fire_time(missed: Any, late: int, catch_up: int) -> None:
    fire_times = FireTimes(Schedule(every=0.7, missed=missed, catch_up=catch_up if missed == "fire-all" else None), T)
    due = T + 700
    plan = fire_times.plan(due, due + late)
    assert list(plan.fire) == sorted(set(plan.fire))
    assert plan.next is not None
    if len(plan.fire) < MAX_CATCH_UP:
        assert plan.next > due + late
    assert len(plan.fire) + plan.skipped == (plan.next - due) // 700
    assert all(due <= fire_time <= due + late for fire_time in plan.fire)


SCHEDULES = [
    Schedule(cron="0 3 * * mon", tz="Europe/Madrid", start=NOON, limit=3),
    Schedule(every=0.25, end=NOON, missed="fire-all", catch_up=7, overlap="skip"),
    Schedule(every=timedelta(days=1), missed="fire-once"),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_stored_schedule_is_read_back(schedule: Schedule) -> None:
    assert read_schedule(schedule_form(schedule, 42)) == (schedule, 42)


@pytest.mark.parametrize("data", [b"", b"\xc0", b"\x80", b"\x81\xa1a\x01", b"\xff", b"\x93\x01\x02\x03"])
def test_an_invalid_stored_schedule_is_refused(data: bytes) -> None:
    with pytest.raises(SerializationError, match="stored schedule"):
        read_schedule(data)


def test_a_schedule_stored_with_meaningless_options_can_be_read() -> None:
    stored = msgpack.packb({"a": 1, "m": "skip", "u": 100, "o": "allow", "e": 5_000, "z": "UTC"})
    assert read_schedule(stored) == (Schedule(every=5), 1)


def test_equal_schedules_have_equal_fire_times() -> None:
    hourly = Schedule(cron="0 * * * *")
    assert have_same_fire_times(hourly, Schedule(cron="0 * * * *", limit=3, missed="fire-all", overlap="skip"))
    assert not have_same_fire_times(hourly, Schedule(cron="0 * * * *", tz="Europe/Madrid"))
    assert hourly == Schedule(cron="0 * * * *", tz="UTC")
    assert replace(hourly, limit=3).tz == "UTC"
    assert replace(Schedule(every=5, missed="fire-all"), limit=3).catch_up == 100
    assert not have_same_fire_times(hourly, Schedule(every=3600))


def test_the_next_fire_time_is_shown_to_users() -> None:
    assert Schedule(cron="30 * * * *").next_after(NOON) == NOON + timedelta(minutes=30)
    assert Schedule(every=10).next_after(NOON) == NOON + timedelta(seconds=10)
    assert Schedule(every=10).next_after(NOON, NOON - timedelta(seconds=3)) == NOON + timedelta(seconds=7)
    assert Schedule(every=10, end=NOON).next_after(NOON) is None


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({}, ValueError, "exactly one of cron and every"),
        ({"cron": "* * * * *", "every": 1}, ValueError, "exactly one of cron and every"),
        ({"cron": 5}, TypeError, "cron must be a str, not 5"),
        ({"cron": "0 " * 300}, ValueError, "600 characters long"),
        ({"cron": "x"}, ValueError, "'x' has 1 fields"),
        ({"every": 0}, ValueError, "every must be more than zero"),
        ({"every": -1}, ValueError, "every must not be negative"),
        ({"every": float("nan")}, ValueError, "every must be a finite number"),
        ({"every": "5"}, TypeError, "every must be seconds"),
        ({"every": 5, "tz": "Europe/Madrid"}, ValueError, "applies only to cron="),
        ({"every": 5, "tz": "UTC"}, ValueError, "applies only to cron="),
        ({"every": 5, "tz": ""}, ValueError, "applies only to cron="),
        ({"every": 5, "catch_up": 5}, ValueError, "catch_up=5 applies only to missed='fire-all', not to missed='skip'"),
        ({"cron": "@daily", "missed": "fire-once", "catch_up": 100}, ValueError, "catch_up=100 applies only"),
        ({"cron": "@daily", "tz": ""}, ValueError, "tz='' is not a known time zone"),
        ({"cron": "@daily", "tz": "Europe/Atlantis"}, ValueError, "tz='Europe/Atlantis' is not a known time zone"),
        ({"cron": "@daily", "tz": "../etc/passwd"}, ValueError, "is not a known time zone"),
        ({"cron": "@daily", "tz": 2}, TypeError, "tz must be the IANA name"),
        ({"every": 5, "start": datetime(2026, 1, 1)}, ValueError, "start must have a time zone"),  # noqa: DTZ001
        ({"every": 5, "end": "tomorrow"}, TypeError, "end must be a datetime"),
        ({"every": 5, "start": NOON, "end": NOON - timedelta(1)}, ValueError, "end must not be before start"),
        ({"cron": "@yearly", "start": NOON, "end": NOON}, ValueError, "there is no fire time from start"),
        ({"every": 5, "limit": 0}, ValueError, "limit must be from 1"),
        ({"every": 5, "limit": True}, TypeError, "limit must be an int"),
        ({"every": 5, "missed": "never"}, ValueError, "missed must be one of 'skip', 'fire-once', 'fire-all'"),
        ({"every": 5, "overlap": "queue"}, ValueError, "overlap must be one of 'allow', 'skip'"),
        ({"every": 5, "catch_up": 1_001}, ValueError, "catch_up must be from 1 to 1000"),
    ],
)
def test_invalid_schedules_are_refused(options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Schedule(**options)
