"""The tests of alerts and events can fail: each of many small defects in the Lua is detected."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from glidemq_async.functions import loader
from glidemq_async.ops import Actor, Ops
from glidemq_async.storage import MemoryStorage
from tests.conformance import test_event_rules as rules
from tests.conformance import test_events as events
from tests.model.alert_mutants import MUTANTS_OF_ALERTS
from tests.model.event_mutants import MUTANTS_OF_EVENTS
from tests.ops import test_alerts as alerts
from tests.ops.receiver import Receiver, receiving
from tests.support.clocked_queue import Timed, timed

DETECTED = (AssertionError, LookupError, TypeError, ValueError, TimeoutError, BaseExceptionGroup, pytest.fail.Exception)
OF_QUEUES = (
    rules.test_completed_events_have_the_size_or_the_value_of_the_result,
    rules.test_content_includes_the_name_and_the_key_of_jobs_that_fail,
    rules.test_the_results_of_one_call_have_a_bounded_size_together,
    rules.test_kinds_that_are_switched_off_leave_no_gap,
    rules.test_the_server_refuses_a_rule_about_the_end_of_a_queue,
)
OF_OPERATORS = (
    rules.test_a_rule_of_an_operator_holds_over_the_code,
    rules.test_an_operator_holds_how_many_events_a_queue_keeps,
)
WITH_CLOCK = (
    rules.test_a_job_has_one_progress_event_in_each_interval,
    rules.test_a_clock_that_was_set_back_does_not_silence_a_job,
)


async def raise_alerts() -> None:
    """Open and close episodes, and notify receivers."""
    for check in (
        alerts.test_a_condition_that_changes_faster_than_its_time_neither_opens_nor_closes,
        alerts.test_one_process_evaluates_and_an_outdated_one_is_refused,
    ):
        await in_core(check)
    for receive in (
        alerts.test_an_episode_opens_and_closes_after_its_time_and_notifies_once_each,
        alerts.test_episodes_end_with_their_rule_and_with_their_queue,
        alerts.test_a_receiver_that_fails_gets_the_same_message_again,
    ):
        async with receiving() as receiver:
            await in_core(partial(_given, receive, receiver))


async def in_core(check: Callable[[Ops, Timed], Awaitable[None]]) -> None:
    """Run a test with an operations core on a new server."""
    async with MemoryStorage(testing=True) as opened:
        place = new(opened)
        async with place.queue, Ops(opened) as ops:
            await check(ops, place)


async def _given(check: Callable[..., Awaitable[None]], receiver: Receiver, ops: Ops, place: Timed) -> None:
    await check(ops, place, receiver)


async def read_events() -> None:
    """Read the values of events, and hold their number."""
    async with MemoryStorage(testing=True) as opened:
        async with new(opened).queue as queue:
            await events.test_the_event_of_a_progress_has_its_value(queue)
        for in_queue in OF_QUEUES:
            async with new(opened).queue as queue:
                await in_queue(queue)
        place = new(opened)
        async with place.queue as queue:
            await rules.test_the_end_of_a_queue_is_an_event_in_any_case(queue, place.store)
        for in_ops in OF_OPERATORS:
            async with new(opened).queue as queue, Ops(opened, actor=Actor("http", "ada")) as ops:
                await queue.connect()
                await in_ops(ops, queue)
    for with_clock in WITH_CLOCK:
        async with MemoryStorage(testing=True) as opened:
            place = new(opened)
            async with place.queue:
                await with_clock(place)


def new(opened: MemoryStorage) -> Timed:
    """Return a new queue."""
    return timed(opened, f"q-{uuid.uuid4().hex[:12]}")


MUTANTS = {
    **{title: (*change, raise_alerts) for title, change in MUTANTS_OF_ALERTS.items()},
    **{title: (*change, read_events) for title, change in MUTANTS_OF_EVENTS.items()},
}


@pytest.mark.parametrize("title", MUTANTS)
def test_the_text_of_a_mutant_occurs_in_the_lua_once(title: str) -> None:
    old, changed, _ = MUTANTS[title]
    assert old != changed
    assert loader.source(testing=True).count(old) == 1, old


@pytest.mark.parametrize("check", [raise_alerts, read_events])
async def test_the_tests_pass_without_a_defect(check: Callable[[], Awaitable[None]]) -> None:
    await check()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the checks that fail
@pytest.mark.parametrize("title", MUTANTS)
async def test_a_test_detects_the_defect(title: str, with_library: Callable[[str], None]) -> None:
    old, changed, check = MUTANTS[title]
    with_library(loader.source(testing=True).replace(old, changed))
    with pytest.raises(DETECTED):
        await check()
