"""Cron expressions, compared with a matcher that tries every minute, and with the behaviour of Vixie cron."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import example, given, settings
from hypothesis import strategies as st

from glidemq_async.schedules.cron import parse_cron

MADRID = ZoneInfo("Europe/Madrid")
SPRING = datetime(2026, 3, 28, 12, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 24, 12, tzinfo=UTC)
# A time zone, and the day before its clock change: both hemispheres, half an hour, two hours, a skipped day, none.
CHANGES = [
    ("Europe/Madrid", SPRING),
    ("Europe/Madrid", AUTUMN),
    ("America/New_York", datetime(2026, 3, 7, 20, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 10, 31, 20, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 5, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 5, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2026, 3, 28, 12, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2026, 10, 24, 12, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 29, 20, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 11, 3, 12, tzinfo=UTC)),
    ("Asia/Kolkata", datetime(2026, 2, 28, 12, tzinfo=UTC)),
]
NAMES = {"jan": 1, "feb": 2, "mar": 3, "oct": 10, "dec": 12, "sun": 0, "mon": 1, "fri": 5, "sat": 6}


def number(text: str) -> int:
    return NAMES[text] if text in NAMES else int(text)


def matches(field: str, value: int, low: int, high: int) -> bool:
    """Return whether one field of an expression accepts a value; weekdays are 0 to 6."""
    for item in field.split(","):
        body, _, step_text = item.partition("/")
        first, _, last = body.partition("-")
        begin, end = low, high
        if body != "*":
            begin = number(first)
            end = number(last) if last else high if step_text else begin
        step = int(step_text or 1)
        accepted = range(begin, end + 1, step)
        if value in accepted or ((low, high) == (0, 7) and value == 0 and 7 in accepted):
            return True
    return False


def local_match(expression: str, local: datetime) -> bool:
    minute, hour, day, month, weekday = expression.split()
    days = matches(day, local.day, 1, 31)
    weekdays = matches(weekday, local.isoweekday() % 7, 0, 7)
    on_day = days and weekdays if day[0] == "*" or weekday[0] == "*" else days or weekdays
    return (
        on_day
        and matches(minute, local.minute, 0, 59)
        and matches(hour, local.hour, 0, 23)
        and matches(month, local.month, 1, 12)
    )


def offset(local: datetime) -> int:
    return int((local.utcoffset() or timedelta()).total_seconds()) // 60


def every_minute(expression: str, zone: ZoneInfo, start: datetime, minutes: int) -> list[datetime]:
    """Return the fire times of Vixie cron, which checks the clock each minute."""
    minute, hour, *_ = expression.split()
    fixed = minute[0] != "*" and hour[0] != "*"
    found: list[datetime] = []
    for n in range(minutes):
        instant = start + timedelta(minutes=n)
        local = instant.astimezone(zone)
        shown = [] if fixed and local.fold else [local]
        before = (instant - timedelta(minutes=1)).astimezone(zone)
        jump = offset(local) - offset(before)
        if fixed and jump > 0:
            shown += [local - timedelta(minutes=m) for m in range(1, jump + 1)]
        if any(local_match(expression, at) for at in shown):
            found.append(instant)
    return found


def after(expression: str, zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    cron = parse_cron(expression, zone)
    found: list[datetime] = []
    at = cron.after(int(start.timestamp()) - 1)
    while at is not None and at < end.timestamp():
        found.append(datetime.fromtimestamp(at, UTC))
        at = cron.after(at)
    return found


def upto(expression: str, zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    cron = parse_cron(expression, zone)
    found: list[datetime] = []
    at = cron.upto(int(end.timestamp()) - 1)
    while at is not None and at >= start.timestamp():
        found.append(datetime.fromtimestamp(at, UTC))
        at = cron.upto(at - 1)
    return found[::-1]


def items(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    pair = st.tuples(number, number).map(sorted).map(lambda two: f"{two[0]}-{two[1]}")
    step = st.integers(1, high + 3)
    stepped = st.tuples(st.one_of(pair, number.map(str), st.just("*")), step).map(lambda two: f"{two[0]}/{two[1]}")
    return st.one_of(number.map(str), pair, stepped)


def field(low: int, high: int, *more: str) -> st.SearchStrategy[str]:
    some = st.lists(st.one_of(items(low, high), *(st.just(one) for one in more)), min_size=1, max_size=3)
    return st.one_of(st.just("*"), some.map(",".join))


EXPRESSIONS = st.tuples(
    field(0, 59),
    st.one_of(field(0, 23), field(0, 3)),
    field(1, 31),
    st.one_of(st.just("*"), field(1, 12, "jan", "feb-oct", "dec")),
    field(0, 7, "sun", "mon", "sun-fri", "sat"),
).map(" ".join)


@settings(max_examples=40)
@given(EXPRESSIONS, st.sampled_from(CHANGES))
@example("30 2 * * *", CHANGES[0])
@example("30 2 * * *", CHANGES[1])
@example("*/7 * * * *", CHANGES[0])
@example("*/7 * * * *", CHANGES[1])
@example("0 0 * * 1-1", CHANGES[0])
@example("0 0 */2 * 1", CHANGES[0])
@example("* * * * 1/1", CHANGES[0])
@example("0 0 * * 0/3", CHANGES[0])
@example("0 0 * * 5/2", CHANGES[0])
@example("* * * * 7/1", CHANGES[0])
def test_cron_fires_like_a_check_of_every_minute(expression: str, change: tuple[str, datetime]) -> None:
    zone, start = ZoneInfo(change[0]), change[1]
    minutes = 36 * 60
    end = start + timedelta(minutes=minutes)
    try:
        parse_cron(expression)
    except ValueError as error:
        assert "matches no day" in str(error)  # noqa: PT017 - the 31st of February
        return
    expected = every_minute(expression, zone, start, minutes)
    assert after(expression, zone, start, end) == expected
    assert upto(expression, zone, start, end) == expected


@given(EXPRESSIONS, st.integers(0, 4_000_000_000))
def test_the_search_backwards_is_the_inverse_of_the_search_forwards(expression: str, instant: int) -> None:
    try:
        cron = parse_cron(expression, MADRID)
    except ValueError:
        return
    found = cron.after(instant)
    assert found is not None
    assert found > instant
    assert cron.upto(found) == found
    earlier = cron.upto(found - 1)
    assert earlier is None or earlier <= instant


@given(EXPRESSIONS, st.integers(0, 4_000_000_000))
def test_croniter_agrees_where_it_reads_cron_correctly(expression: str, instant: int) -> None:
    if re.search(r"\b(\d+)-\1\b", expression):  # it reads a range of one value as all values
        return
    if re.search(r"(^|,)\w+/", expression.split()[4]):  # it ends the rest of a week on Saturday
        return
    if any("*" in word and word != "*" for word in expression.split()[2:5:2]):  # or a star in a list
        return
    try:
        cron = parse_cron(expression)
    except ValueError:
        return
    start = datetime.fromtimestamp(instant, UTC)
    expected = croniter(expression, start, max_years_between_matches=50).get_next(datetime)
    assert cron.after(instant) == int(expected.timestamp())


@given(st.integers(0, 59), st.integers(0, 59), st.integers(0, 4_000_000_000))
def test_a_sixth_field_in_front_means_seconds(second: int, minute: int, instant: int) -> None:
    found = parse_cron(f"{second} {minute} * * * *").after(instant)
    assert found is not None
    assert (found % 60, found // 60 % 60) == (second, minute)
    assert instant < found <= instant + 3600


def local(expression: str, start: datetime, count: int, zone: ZoneInfo = MADRID) -> list[str]:
    cron, at = parse_cron(expression, zone), int(start.timestamp())
    shown: list[str] = []
    for _ in range(count):
        found = cron.after(at)
        assert found is not None
        at = found
        shown.append(datetime.fromtimestamp(at, zone).strftime("%d %H:%M%z"))
    return shown


def test_a_time_skipped_in_spring_fires_after_the_gap() -> None:
    assert local("30 2 * * *", SPRING, 2) == ["29 03:00+0200", "30 02:30+0200"]


def test_times_that_coincide_after_the_gap_fire_once() -> None:
    assert local("0,20,40 2,3 * * *", SPRING, 4) == [
        "29 03:00+0200",
        "29 03:20+0200",
        "29 03:40+0200",
        "30 02:00+0200",
    ]


def test_a_time_repeated_in_autumn_fires_once() -> None:
    assert local("30 2 * * *", AUTUMN, 2) == ["25 02:30+0200", "26 02:30+0100"]


def test_a_half_hourly_schedule_follows_elapsed_time() -> None:
    assert local("*/30 1-3 * * *", SPRING, 4) == ["29 01:00+0100", "29 01:30+0100", "29 03:00+0200", "29 03:30+0200"]
    assert local("*/30 2 * * *", AUTUMN, 4) == ["25 02:00+0200", "25 02:30+0200", "25 02:00+0100", "25 02:30+0100"]


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@HOURLY", "0 * * * *"),
        ("0 0 * * 7", "0 0 * * sun"),
        ("0 0 * * 5-7", "0 0 * * sun,fri,sat"),
        ("0 0 * JAN-Mar Mon", "0 0 * 1,2,3 1"),
        ("0 22-2 * * *", "0 0,1,2,22,23 * * *"),
        ("0 22-4/3 * * *", "0 22,1,4 * * *"),
        ("50-10/7 * * * *", "50,57,4 * * * *"),
        ("0 0 31-7/2 * *", "0 0 31,2,4,6 * *"),
        ("0 0 1 nov-feb/3 *", "0 0 1 2,11 *"),
        ("0 0 * * fri-mon/2", "0 0 * * fri,sun"),
        ("0 0 * * 7-0", "0 0 * * sun"),
        ("0 0 * * 7-2", "0 0 * * sun,mon,tue"),
        ("5/20 * * * *", "5,25,45 * * * *"),
        ("0 0 * 3-3 *", "0 0 * 3 *"),
        ("  0   0 * * * ", "0 0 * * *"),
    ],
)
def test_equivalent_forms_have_the_same_times(short: str, long: str) -> None:
    one, two = parse_cron(short), parse_cron(long)
    at = other = 1_700_000_000
    for _ in range(100):
        at, other = one.after(at) or 0, two.after(other) or 0
        assert at == other > 0


def test_a_day_must_match_one_of_two_restricted_day_fields() -> None:
    found = [at.strftime("%a %d") for at in after("0 0 13 * fri", ZoneInfo("UTC"), SPRING, SPRING + timedelta(days=31))]
    assert found == ["Fri 03", "Fri 10", "Mon 13", "Fri 17", "Fri 24"]


def test_a_day_field_that_begins_with_a_star_must_match_too() -> None:
    found = [at.strftime("%a %d") for at in after("0 0 */2 * 1", ZoneInfo("UTC"), SPRING, SPRING + timedelta(days=31))]
    assert found == ["Mon 13", "Mon 27"]


# Each row is a fault of croniter that schedules/cron.py works around. When a row fails because croniter has changed,
# the workaround can go.
@pytest.mark.parametrize(
    ("expression", "field", "wrong", "right"),
    [
        ("1-1 * * * *", 0, ["*"], "1 * * * *"),
        ("0 22-4/3 * * *", 1, [2, 22], "0 1,4,22 * * *"),
        ("0 0 * * 1/2", 4, [1, 3, 5], "0 0 * * 0,1,3,5"),
        ("0 0 * * 7/2", 4, [0, 2, 4, 6], "0 0 * * 0"),
    ],
)
def test_ranges_that_croniter_misreads_are_corrected(
    expression: str, field: int, wrong: list[object], right: str
) -> None:
    assert croniter.expand(expression)[0][field] == wrong
    found, wanted = parse_cron(expression), parse_cron(right)
    at = other = 1_700_000_000
    for _ in range(100):
        at, other = found.after(at) or 0, wanted.after(other) or 0
        assert at == other > 0


def test_croniter_fires_twice_when_the_clock_is_set_back() -> None:
    # test_a_time_repeated_in_autumn_fires_once has the right times.
    times = croniter("30 2 * * *", AUTUMN.astimezone(MADRID))
    assert [times.get_next(datetime).strftime("%d %H:%M") for _ in range(2)] == ["25 02:30", "25 02:30"]


def test_croniter_ignores_that_a_day_field_begins_with_a_star() -> None:
    # test_a_day_field_that_begins_with_a_star_must_match_too has the right days.
    days = croniter("0 0 */2 * 1", SPRING)
    assert [days.get_next(datetime).strftime("%a %d") for _ in range(2)] == ["Sun 29", "Mon 30"]


def test_the_29th_of_february_is_found_across_a_century_without_one() -> None:
    last = int(datetime(2096, 3, 1, tzinfo=UTC).timestamp())
    assert parse_cron("0 0 29 2 *").after(last) == int(datetime(2104, 2, 29, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("* * * * * * *", "has 7 fields"),
        ("60 * * * *", "minute must be from 0 to 59, got 60"),
        ("* 24 * * *", "hour must be from 0 to 23, got 24"),
        ("* * 0-40 * *", "day of month must be from 1 to 31, got 0"),
        ("* * 32 * *", "day of month must be from 1 to 31, got 32"),
        ("* * * 13 *", "month must be from 1 to 12, got 13"),
        ("* * * * 8", "day of week must be from 0 to 7, got 8"),
        ("*/0 * * * *", "the step of '*/0' must be at least 1"),
        ("-1 * * * *", "'-1' is not a valid minute"),
        ("1.5 * * * *", "'1.5' is not a valid minute"),
        ("1, * * * *", "'' is not a valid minute"),
        ("R * * * *", "'r' is not a valid minute"),
        ("* H * * *", "'h' is not a valid hour"),
        ("* * L * *", "'l' is not a valid day of month"),
        ("* * * * fri#2", "'fri#2' is not a valid day of week"),
        ("* * ? * *", "'?' is not a valid day of month"),
        ("* * * mon *", "'mon' is not a valid month"),
        ("\u0663 * * * *", "is not a valid minute"),
        ("@reboot", "unknown; the short forms are @yearly"),
        ("@every 5m", "unknown"),
        ("0 0 30 2 *", "matches no day"),
    ],
)
def test_invalid_cron_expressions_are_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        parse_cron(text)
    assert repr(text) in str(caught.value)


@settings(max_examples=150)
@given(
    st.sampled_from(CHANGES),
    st.sampled_from(
        ["* * * * *", "*/7 1-4 * * *", "30 2 * * *", "0 */3 * * mon", "15,45 0-3 * * *", "*/20 30 2 * * *"]
    ),
    st.integers(0, 86_400),
    st.integers(0, 4 * 86_400),
)
def test_the_count_of_matches_equals_the_number_of_iterated_ones(
    change: tuple[str, datetime], text: str, offset: int, length: int
) -> None:
    zone, day = change
    cron = parse_cron(text, ZoneInfo(zone))
    after = round(day.timestamp()) + offset
    walked, at = 0, cron.after(after)
    while at is not None and at <= after + length and walked < 2_000:
        walked, at = walked + 1, cron.after(at)
    assert cron.count(after, after + length, 2_000) == walked
    assert cron.count(after, after + length, 3) == min(walked, 3)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Madrid"])
def test_counting_the_fire_times_of_an_outage_is_fast(zone: str) -> None:
    cron = parse_cron("* * * * *", ZoneInfo(zone))
    asked = 0
    offset = cron._offset  # pyright: ignore[reportPrivateUsage]

    def count(instant: int) -> int:
        nonlocal asked
        asked += 1
        return offset(instant)

    begin = round(datetime(2026, 5, 1, 8, tzinfo=UTC).timestamp())
    cron._offset = count  # type: ignore[method-assign]
    assert cron.count(begin, begin + 86_400, 5_000) == 1_440
    del cron._offset  # pyright: ignore[reportPrivateUsage]
    assert asked < 20
