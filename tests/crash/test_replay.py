"""The check of the limit stress can fail: it detects each guarantee that a history breaks, and reports nothing else."""

from __future__ import annotations

import pytest

from tests.crash.bounds import Change
from tests.crash.checker import Violation
from tests.crash.handlers import HandlerRun, outlived, stray_runs
from tests.crash.replay import CHANGE_BEGINS, CHANGE_ENDS, Event, Lease, Replay

ONE, OTHER = "one-1 0 1000", "one-1 5 1000"
PAID = "paid-1 0 {cost}"
NEVER = 60_000


def events(text: str) -> list[Event]:
    """A history with one event per line: time, kind, job, detail. The events are in the order of the server."""
    events: list[Event] = []
    for line in filter(str.strip, text.splitlines()):
        at, kind, job, *detail = line.split(None, 3)
        events.append(Event(kind, job, int(at), *detail))
    return events


def replay(text: str, *changes: Change) -> Replay:
    """Replay a history under limits that were set before it."""
    found = Replay(dict(enumerate(changes)))
    before = [
        Event("key-resumed", f"{word}{n}", 0) for n, _ in enumerate(changes) for word in (CHANGE_BEGINS, CHANGE_ENDS)
    ]
    found.take_all([*before, *events(text)])
    return found


def kinds(text: str, *changes: Change) -> list[str]:
    """Return the kinds of violations in a history."""
    return [one.kind for one in replay(text, *changes).violations]


SOUND = f"""
    0    added     a  {ONE}
    0    added     b  {ONE}
    1    added     c  {ONE}
    10   active    a
    20   stalled   a  1
    20   active    a
    30   retrying  a  50 again
    80   waiting   a
    80   active    a
    90   completed a
    90   active    b
    95   returned  b
    96   active    b
    99   limited   b  20
    119  active    b
    130  failed    b  told
    130  active    c
    150  completed c
"""


def test_a_correct_history_has_no_violations() -> None:
    found = replay(SOUND)
    assert found.violations == []
    assert found.leases["a", 2] == Lease(20, 30, "retrying")
    assert found.peaks.found["one", "concurrency"].most == 1
    assert found.counts["b"] == {"added": 1, "active": 3, "returned": 1, "limited": 1, "failed": 1}


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("20   stalled   a  1\n    20   active    a", "20   active    b", "concurrency"),
        ("90   completed a\n    90   active    b", "90   active    b\n    90   completed a", "concurrency"),
        ("20   stalled   a  1\n", "", "step"),
        ("80   waiting   a\n", "", "step"),
        ("0    added     b", "2    added     b", None),
        ("1    added     c", "9    retrying  c 0 early\n    9    added     c", "order"),
        ("119  active    b", "118  active    b", "pause"),
        ("150  completed c", "", "stuck"),
        ("130  active    c", "", "step"),
    ],
)
def test_a_changed_history_is_detected(old: str, new: str, kind: str | None) -> None:
    found = kinds(SOUND.replace(old, new))
    assert (kind in found) if kind else found == []


def test_two_runs_of_a_key_are_a_violation_only_while_both_fencing_tokens_are_valid() -> None:
    both = "0 added a {0}\n0 added b {0}\n1 active a\n{1}\n5 active b\n9 completed b\n{2}"
    assert kinds(both.format(ONE, "", "9 completed a")) == ["concurrency", "order"]
    # Its job was reclaimed, though its worker may continue.
    sound = both.format(OTHER, "4 stalled a 9\n4 failed a stalled", "")
    assert kinds(sound) == []


def test_a_limit_of_the_queue_counts_all_jobs() -> None:
    limit = Change("", "concurrency", (2,))
    history = f"0 added a {ONE}\n0 added b - 0 1000\n0 added c - 3 1000\n1 active a\n1 active b\n{{}}\n5 active c\n"
    ends = "9 completed b\n9 completed c"
    assert kinds(history.format("3 completed a") + ends, limit) == []
    assert kinds(history.format("") + "9 completed a\n" + ends, limit) == ["concurrency"]


def test_no_job_starts_while_more_run_than_a_lowered_limit_permits() -> None:
    history = """
        0 added a some-1 0 1000
        0 added b some-1 0 1000
        0 added c some-1 0 1000
        1 active a
        1 active b
        2 key-resumed begins-1
        {during}
        3 key-resumed ends-1
        4 completed a
        {before}
        5 completed b
        {after}
        9 completed c
    """
    limits = Change("some-1", "concurrency", (3,)), Change("some-1", "concurrency", (1,))

    def with_start(where: str) -> list[str]:
        starts = dict.fromkeys(("during", "before", "after"), "") | {where: "3 active c"}
        text = history.format(**starts)
        found = Replay(dict(enumerate(limits)))
        found.take_all([Event("key-resumed", "begins-0", 0), Event("key-resumed", "ends-0", 0), *events(text)])
        return [one.kind for one in found.violations]

    assert with_start("after") == []
    assert with_start("during") == [], "the old limit may have applied"
    assert with_start("before") == ["concurrency"]


def starts(*at: int, name: str = "paced-1 0 1000", last: str | None = None) -> str:
    """A history of jobs that start at these times and end together."""
    ids = [f"j{n}" for n in range(len(at))]
    names = [name] * (len(at) - 1) + [last or name]
    lines = [f"0 added {job} {called}" for job, called in zip(ids, names, strict=True)]
    lines += [f"{when} active {job}" for when, job in zip(at, ids, strict=True)]
    return "\n".join([*lines, *(f"{NEVER} completed {job}" for job in ids)])


MANY = Change("paced-1", "concurrency", (99,))
RATE = Change("paced-1", "rate", (3, 100))


def test_a_window_includes_its_last_millisecond_but_not_its_first() -> None:
    assert kinds(starts(0, 50, 99, 100, 150), MANY, RATE) == []
    assert kinds(starts(0, 50, 99, 99, 150), MANY, RATE) == ["rate"]
    assert kinds(starts(0, 50, 99, 100, 149), MANY, RATE) == ["rate"]


def test_the_window_of_the_queue_counts_all_keys() -> None:
    rate = Change("", "rate", (2, 100))
    assert kinds(starts(0, 10, 100, last="one-1 0 1000"), MANY, rate) == []
    assert kinds(starts(0, 10, 99, last="one-1 0 1000"), MANY, rate) == ["rate"]


BUCKET = Change("paid-1", "bucket", (3_000, 10_000))
MANY_PAID = Change("paid-1", "concurrency", (99,))


def paid(*at: int, last: int = 1000) -> list[str]:
    """Return the violations of jobs that start at these times, of which the last one has this cost."""
    return kinds(starts(*at, name=PAID.format(cost=1000), last=PAID.format(cost=last)), MANY_PAID, BUCKET)


def test_in_every_interval_the_costs_fit_the_content_and_refill_of_the_bucket() -> None:
    assert paid(0, 0, 0, 100, 200) == []
    assert paid(0, 0, 0, 99) == ["bucket"]
    assert paid(0, 0, 0, 100, 199) == ["bucket"]
    assert paid(0, 1000, 1000, 1000, 1099) == ["bucket"], "a full bucket does not save its refill"


def test_a_job_above_the_capacity_starts_from_a_full_bucket_into_debt() -> None:
    assert paid(0, 100, last=9_000) == []
    assert paid(0, 99, last=9_000) == ["bucket"]
    debt = starts(0, 700, name=PAID.format(cost=9_000), last=PAID.format(cost=1_000))
    assert kinds(debt, MANY_PAID, BUCKET) == []
    assert kinds(debt.replace("700 active", "699 active"), MANY_PAID, BUCKET) == ["bucket"]


def test_the_most_urgent_job_of_a_key_starts_first_and_the_oldest_among_equals() -> None:
    history = f"0 added a {OTHER}\n0 added b {ONE}\n0 added c {ONE}\n" + "\n".join(
        f"{at} active {{{n}}}\n{at} completed {{{n}}}" for n, at in enumerate((1, 2, 3))
    )
    assert kinds(history.format("b", "c", "a")) == []
    assert set(kinds(history.format("a", "b", "c"))) == {"order"}
    assert set(kinds(history.format("c", "b", "a"))) == {"order"}


def test_a_delayed_job_joins_the_order_at_the_end_of_its_delay() -> None:
    history = f"0 added a {ONE}\n0 added b {ONE}\n0 delayed a\n5 waiting a\n" + "\n".join(
        f"9 active {{{n}}}\n9 completed {{{n}}}" for n in range(2)
    )
    assert kinds(history.format("b", "a")) == []
    assert set(kinds(history.format("a", "b"))) == {"order"}


def test_no_job_overtakes_one_that_waits_for_its_next_attempt() -> None:
    history = f"0 added a {ONE}\n0 added b {ONE}\n1 active a\n{{}}\n9 active b\n9 completed b\n"
    history += "9 waiting a\n9 active a\n9 completed a"
    assert set(kinds(history.format("2 retrying a 50 again"))) == {"order"}
    assert set(kinds(history.format("2 delayed a"))) == {"order"}
    wide = Change("one-1", "concurrency", (2,))
    assert kinds(history.format("2 retrying a 50 again"), wide) == [], (
        "with a higher concurrency later jobs may overtake"
    )


@pytest.mark.parametrize("pause", ["10 key-paused one-1 40", "10 active b\n10 limited b 40"])
def test_no_job_starts_before_the_end_of_a_pause(pause: str) -> None:
    history = f"0 added b {ONE}\n{pause}\n{{}} active b\n90 completed b"
    assert kinds(history.format(50)) == []
    assert kinds(history.format(49)) == ["pause"]
    assert kinds(history.format("49 key-resumed one-1\n49")) == []


def test_a_rate_limited_job_without_a_key_stops_the_queue() -> None:
    history = f"0 added a - 0 1000\n0 added b {ONE}\n1 active a\n10 limited a 40\n{{}} active b\n90 completed b\n"
    history += "90 active a\n90 completed a"
    assert kinds(history.format(50)) == []
    assert kinds(history.format(49)) == ["pause"]


def test_a_removed_or_expired_job_blocks_no_other_job_and_has_one_end() -> None:
    history = f"0 added a {ONE}\n0 added b {ONE}\n0 added c {ONE}\n{{}}\n2 active c\n3 completed c"
    gone = replay(history.format("1 removed a key-waiting\n1 failed b expired"))
    assert gone.violations == []
    assert gone.counts["b"] == {"added": 1, "failed": 1, "given up": 1}
    assert set(kinds(history.format("1 removed a key-waiting"))) == {"order", "stuck"}
    assert kinds(history.format("1 active a\n1 removed a active\n1 failed b revoked")) == []
    assert kinds(history.format("1 removed a key-waiting\n1 failed b expired\n1 active b")) == [
        "step",
        "concurrency",
        "stuck",
    ]


def test_a_job_with_a_changed_priority_joins_the_order_of_that_priority() -> None:
    history = f"0 added a {ONE}\n0 added b {OTHER}\n0 added c {OTHER}\n1 changed a priority 5\n" + "\n".join(
        f"{at} active {{{n}}}\n{at} completed {{{n}}}" for n, at in enumerate((1, 2, 3))
    )
    assert kinds(history.format("a", "b", "c")) == []
    assert set(kinds(history.format("b", "a", "c"))) == {"order"}
    sooner = f"0 added a {OTHER}\n0 added b {OTHER}\n1 changed b priority 1\n1 active b\n1 completed b\n"
    assert kinds(sooner + "2 active a\n2 completed a") == []


def stray_kinds(run: HandlerRun, lease: Lease) -> list[str]:
    """Return the kinds of violations of this run. Its monotonic clock began at 100 s of the wall clock."""
    found: list[Violation] = list(stray_runs([run], {("a", 1): lease}, 100.0))
    return [one.kind for one in found]


def test_a_handler_runs_within_the_interval_of_its_fencing_token() -> None:
    lease = Lease(101_000, 102_000, "completed")
    assert stray_kinds(HandlerRun("a", 1, 1.0, 2.0), lease) == []
    assert stray_kinds(HandlerRun("a", 1, 0.99, 2.0), lease) == ["stray"]
    assert stray_kinds(HandlerRun("a", 1, 1.0, 2.01), lease) == ["stray"]
    assert stray_kinds(HandlerRun("a", 2, 1.0, 2.0), lease) == ["fence"]


def test_a_zombie_that_continues_after_its_lease_is_not_a_violation() -> None:
    leases = {("a", 1): Lease(101_000, 102_000, "stalled")}
    run = HandlerRun("a", 1, 1.0, 2.5)
    assert list(stray_runs([run], leases, 100.0)) == []
    assert outlived(run, leases, 100.0)
    assert not outlived(HandlerRun("a", 1, 1.0), leases, 100.0)
