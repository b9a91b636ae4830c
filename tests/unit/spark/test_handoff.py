"""The handoff from callbacks to jobs: bounded, in order, with retries, and closed in a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("pyspark")

from glidemq_async.errors import StorageUnavailable
from glidemq_async.spark.driver.handoff import Delivered, Handoff, HandoffStats


class Store:
    """A receiver that delivers when the test permits it."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.open = threading.Event()
        self.called = threading.Event()
        self.errors: list[Exception] = []

    def deliver(self, things: Sequence[Any]) -> Delivered:
        self.called.set()
        self.open.wait(10)
        if self.errors:
            raise self.errors.pop(0)
        self.got += things
        return Delivered(len(things))


def test_close_waits_until_all_items_are_delivered_in_order() -> None:
    store = Store()
    handoff: Handoff[int] = Handoff(store.deliver, 500, "drop", "test")
    for number in range(250):
        assert handoff.put(number)
    store.open.set()
    assert handoff.close(5)
    assert store.got == list(range(250))
    assert handoff.stats == HandoffStats(250, added=250)
    assert not handoff.put(1)
    assert handoff.stats.dropped == 1


def test_items_for_a_full_buffer_are_dropped_and_counted() -> None:
    store = Store()
    handoff: Handoff[int] = Handoff(store.deliver, 2, "drop", "test")
    assert [handoff.put(number) for number in range(4)] == [True, True, False, False]
    store.open.set()
    assert handoff.close(5)
    assert store.got == [0, 1]
    assert handoff.stats == HandoffStats(4, added=2, dropped=2)


def test_items_for_a_full_buffer_may_wait() -> None:
    store = Store()
    handoff: Handoff[int] = Handoff(store.deliver, 1, "block", "test")
    assert handoff.put(0)
    taken = threading.Event()

    def put() -> None:
        handoff.put(1)
        taken.set()

    thread = threading.Thread(target=put)
    thread.start()
    assert not taken.wait(0.2)
    store.open.set()
    assert taken.wait(5)
    thread.join()
    assert handoff.close(5)
    assert store.got == [0, 1]


def test_close_ends_a_put_that_waits_for_space() -> None:
    store = Store()
    handoff: Handoff[int] = Handoff(store.deliver, 1, "block", "test")
    handoff.put(0)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(handoff.put(1)))
    thread.start()
    assert store.called.wait(5)
    threading.Timer(0.2, store.open.set).start()
    assert handoff.close(5)
    thread.join(5)
    # `close` ended the wait, or there was room just before it. The result is right in both cases.
    assert (answers, len(store.got)) in [([False], 1), ([True], 2)]


def test_an_unreachable_server_is_retried() -> None:
    store = Store()
    store.errors = [StorageUnavailable("away"), StorageUnavailable("still away")]
    store.open.set()
    handoff: Handoff[int] = Handoff(store.deliver, 10, "drop", "test")
    handoff.put(1)
    assert handoff.close(5)
    assert store.got == [1]


def test_close_ends_after_its_timeout() -> None:
    store = Store()
    store.errors = [StorageUnavailable("away")] * 1000
    store.open.set()
    handoff: Handoff[int] = Handoff(store.deliver, 10, "drop", "test")
    handoff.put(1)
    assert not handoff.close(0.3)
    assert handoff.stats == HandoffStats(1, pending=1)


def test_a_failed_item_is_counted_and_does_not_stop_others() -> None:
    store = Store()
    store.errors = [ValueError("too long")]
    handoff: Handoff[int] = Handoff(store.deliver, 10, "drop", "test")
    handoff.put(1)
    assert store.called.wait(5)
    handoff.put(2)
    store.open.set()
    assert handoff.close(5)
    assert store.got == [2]
    assert handoff.stats == HandoffStats(2, added=1, failed=1)


def test_one_bad_item_of_a_batch_fails_alone() -> None:
    got: list[int] = []
    held = threading.Event()

    def deliver(things: Sequence[int]) -> Delivered:
        held.wait(5)
        if 2 in things:
            raise ValueError("two is too many")
        got.extend(things)
        return Delivered(len(things))

    handoff: Handoff[int] = Handoff(deliver, 10, "drop", "test")
    for number in range(5):
        handoff.put(number)
    held.set()
    assert handoff.close(5)
    assert got == [0, 1, 3, 4]
    assert handoff.stats == HandoffStats(5, added=4, failed=1)


def test_skipped_items_do_not_count_as_failed() -> None:
    held = threading.Event()

    def deliver(things: Sequence[int]) -> Delivered:
        held.wait(5)
        return Delivered(added=things.count(1), duplicates=things.count(2), left_out=things.count(3))

    handoff: Handoff[int] = Handoff(deliver, 10, "drop", "test")
    for number in (1, 2, 2, 3, 3, 3, 4):
        handoff.put(number)
    held.set()
    assert handoff.close(5)
    assert handoff.stats == HandoffStats(7, added=1, duplicates=2, left_out=3, failed=1)


def test_no_item_counts_twice_when_the_timeout_expires_during_a_batch() -> None:
    """Items that were delivered alone after their batch failed are not pending during a later outage."""
    held = threading.Event()

    def deliver(things: Sequence[int]) -> Delivered:
        held.wait(5)
        if len(things) > 1:
            raise ValueError("not all at once")
        if things[0] >= 3:
            raise StorageUnavailable("away")
        return Delivered(1)

    handoff: Handoff[int] = Handoff(deliver, 10, "drop", "test")
    for number in (0, 1, 2, 3, 4, 5):
        handoff.put(number)
    held.set()
    assert not handoff.close(0.3)
    assert handoff.stats == HandoffStats(6, added=3, pending=3)


def test_a_forked_child_has_an_empty_handoff() -> None:
    store = Store()
    handoff: Handoff[int] = Handoff(store.deliver, 10, "drop", "test")
    handoff.put(1)
    assert store.called.wait(5)
    child = os.fork()
    if child == 0:
        stats = handoff.stats
        os._exit(0 if handoff.close(0.1) and not handoff.put(2) and stats.pending == 0 else 1)
    _, status = os.waitpid(child, 0)
    store.open.set()
    assert handoff.close(5)
    assert (status, store.got) == (0, [1])


def test_bad_options_are_refused() -> None:
    overflow: Any = "spill"
    with pytest.raises(ValueError, match="drop, block"):
        Handoff(Store().deliver, 1, overflow, "test")
    with pytest.raises(ValueError, match="capacity"):
        Handoff(Store().deliver, 0, "drop", "test")
