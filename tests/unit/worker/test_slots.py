"""The slots of a worker: a direct claim is kept as a list until one of its runs has ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from glidemq_async.executors.inline import InlineExecutor
from glidemq_async.jobs.abort import AbortSignal
from glidemq_async.worker.runs import Run
from glidemq_async.worker.slots import Slots


def new_runs(*entries: str) -> list[Run]:
    """Return runs with these entries."""
    return [Run(cast("Any", SimpleNamespace(abort=AbortSignal())), entry, has_options=False) for entry in entries]


@pytest.fixture
def slots() -> Slots:
    return Slots(5, InlineExecutor())


@pytest.mark.parametrize("are_distinct", [True, False])
def test_runs_free_their_slots_one_by_one_or_together(slots: Slots, are_distinct: bool) -> None:
    first, second, third = runs = new_runs("p1-0", "p2-0", "p3-0")
    assert slots.take(runs, are_distinct=are_distinct) == runs
    assert (len(slots), slots.free(), slots.all_free.is_set()) == (3, 2, False)
    slots.release([second])
    assert slots.runs() == [first, third]
    slots.release([first, third])
    assert (slots.runs(), slots.free(), slots.all_free.is_set()) == ([], 5, True)


@pytest.mark.parametrize("are_distinct", [True, False])
def test_a_second_claim_gets_no_slot_for_a_run_that_has_one(slots: Slots, are_distinct: bool) -> None:
    first, second = new_runs("p1-0", "p2-0")
    assert slots.take([first], are_distinct=True) == [first]
    again = new_runs("p1-0")
    assert slots.take([*again, second], are_distinct=are_distinct) == [second]
    assert slots.runs() == [first, second]


def test_one_claim_may_name_an_entry_twice(slots: Slots) -> None:
    first, again = new_runs("p1-0", "p1-0")
    assert len(slots.take([first, again])) == 1
    assert len(slots) == 1


def test_a_run_of_a_direct_claim_can_be_stopped(slots: Slots) -> None:
    first, second = runs = new_runs("p1-0", "p2-0")
    slots.take(runs, are_distinct=True)
    assert not slots.stop_entries(["p2-0", "p9-0"], "revoked")
    assert (first.stop_reason, second.stop_reason) == ("", "revoked")
    assert slots.runs() == runs
    slots.release(runs)
    assert slots.all_free.is_set()
