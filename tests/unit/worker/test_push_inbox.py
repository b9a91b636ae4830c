"""A push is valid until the worker's next call, and only while its lease is young."""

from __future__ import annotations

import pytest

from glidemq_async.functions.push import JobsPushed
from glidemq_async.worker.push_inbox import PushInbox

NOW = 1_800_000_000_000
LEASE_MS = 1_000


@pytest.fixture
def inbox() -> PushInbox:
    """An inbox whose worker has the reply to its third call."""
    made = PushInbox(LEASE_MS)
    made.answered(3, NOW, 10.0)
    return made


def pushed(number: int, age_ms: int = 0) -> JobsPushed:
    return JobsPushed(number, NOW - age_ms, [])


def test_a_push_after_the_last_call_is_taken_once(inbox: PushInbox) -> None:
    assert inbox.receive(pushed(3), 3)
    assert (bool(inbox), inbox.has_last) == (True, False)
    assert inbox.take(10.0, is_safe=True) == pushed(3)
    assert (bool(inbox), inbox.has_last) == (False, True)
    assert inbox.take(10.0, is_safe=True) is None


def test_the_next_reply_ends_an_accepted_push(inbox: PushInbox) -> None:
    inbox.receive(pushed(3), 3)
    inbox.take(10.0, is_safe=True)
    inbox.answered(4, NOW, 10.0)
    assert not inbox.has_last


@pytest.mark.parametrize("last_number", [4, 5])
def test_a_push_from_before_a_later_call_is_dropped(inbox: PushInbox, last_number: int) -> None:
    assert not inbox.receive(pushed(3), last_number)
    assert not inbox


def test_a_push_that_overtakes_a_reply_is_taken_after_it(inbox: PushInbox) -> None:
    assert inbox.receive(pushed(4), 4)
    inbox.answered(4, NOW, 10.0)
    assert inbox.take(10.0, is_safe=True) == pushed(4)


def test_a_push_whose_call_has_no_reply_is_dropped(inbox: PushInbox) -> None:
    inbox.receive(pushed(4), 4)
    assert inbox.take(10.0, is_safe=True) is None
    assert not inbox.has_last


@pytest.mark.parametrize(
    ("age_ms", "waited", "is_taken"),
    [(0, 0.0, True), (240, 0.0, True), (0, 0.24, True), (260, 0.0, False), (0, 0.26, False), (130, 0.13, False)],
)
def test_a_push_is_dropped_after_a_quarter_of_the_lease(
    inbox: PushInbox, age_ms: int, waited: float, is_taken: bool
) -> None:
    inbox.receive(pushed(3, age_ms), 3)
    assert (inbox.take(10.0 + waited, is_safe=True) is not None) == is_taken
    assert inbox.has_last == is_taken


def test_a_push_is_dropped_after_the_clock_of_the_server_was_set(inbox: PushInbox) -> None:
    inbox.receive(pushed(3, -60_000), 3)
    assert inbox.take(10.0, is_safe=True) is None


def test_a_declined_push_that_becomes_too_old_is_not_the_last_one(inbox: PushInbox) -> None:
    assert inbox.accept(3, pushed(3).claimed_at, 10.0)
    inbox.decline()
    inbox.receive(pushed(3), 3)
    assert inbox.take(10.26, is_safe=True) is None
    assert not inbox.has_last


def test_a_push_is_dropped_while_leases_are_not_renewed(inbox: PushInbox) -> None:
    inbox.receive(pushed(3), 3)
    assert inbox.take(10.0, is_safe=False) is None
    assert not inbox
