"""The tests of explanations and settings can fail: each of many small defects in the Lua is detected."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

import pytest

from glidemq_async import Queue
from glidemq_async.functions import loader
from glidemq_async.ops import Actor, Ops
from glidemq_async.storage import MemoryStorage
from tests.behaviour import test_explain_at_random as explaining
from tests.conformance import test_explaining as gates
from tests.model.setting_mutants import MUTANTS_OF_EXPLANATIONS, MUTANTS_OF_SETTINGS
from tests.ops import test_settings as settings
from tests.support.clocked_queue import Timed, timed
from tests.support.helpers import AnyQueue
from tests.tasks import test_declared_limits as declared

Check: TypeAlias = "Callable[[], Awaitable[None]]"
DETECTED = (AssertionError, LookupError, TypeError, ValueError, RuntimeError, BaseExceptionGroup, pytest.fail.Exception)
EXPLANATIONS: tuple[Callable[[Timed], Awaitable[None]], ...] = (
    explaining.test_regression_keys_whose_jobs_have_all_expired_give_their_turn_to_other_keys,
    explaining.test_regression_a_bucket_must_pay_for_the_first_job_that_has_not_expired,
)
GATES: tuple[Callable[[AnyQueue], Awaitable[None]], ...] = (
    gates.test_limits_of_a_key_hold_its_jobs_back,
    gates.test_a_job_of_the_key_that_waits_for_its_next_attempt_holds_the_key,
)
SETTINGS: tuple[Callable[[Ops, AnyQueue], Awaitable[None]], ...] = (
    settings.test_a_limit_of_an_operator_survives_the_declaration_of_a_deploy,
    settings.test_a_direct_call_holds_over_a_declaration_too,
    settings.test_limits_of_keys_are_held_by_key,
    settings.test_a_pause_has_a_note_and_an_author,
    settings.test_a_full_queue_refuses_adds,
    settings.test_a_paused_schedule_says_who_has_paused_it_until_it_is_released,
    settings.test_a_held_retention_applies_instead_of_the_options_of_jobs,
)


async def alone(*tests: Callable[[Timed], Awaitable[object]]) -> None:
    """Run each test on a new server, whose clock it moves."""
    for test in tests:
        async with MemoryStorage(testing=True) as opened:
            world = timed(opened, name())
            async with world.queue:
                await test(world)


async def explain() -> None:
    """Compare explanations with claims."""
    async with MemoryStorage(testing=True) as opened:
        for check in GATES:
            async with Queue[Any, Any](name(), opened) as queue:
                await check(queue)
    compared = [partial(explaining.compare, seed=seed, states=400) for seed in range(3)]
    await alone(*EXPLANATIONS, *compared)


async def change_settings() -> None:
    """Declare, hold and release settings."""
    async with MemoryStorage(testing=True) as opened:
        for check in SETTINGS:
            async with Queue[Any, Any](name(), opened) as queue, Ops(opened, actor=Actor("http", "ada")) as ops:
                await check(ops, queue)
        await declared.test_a_deploy_without_a_declaration_removes_only_what_the_code_has_set(opened, name())
    await alone(
        settings.test_jobs_of_every_kind_count_as_waiting, settings.test_a_released_retention_stays_until_a_job_ends
    )


def name() -> str:
    """Return a name of a queue."""
    return f"q-{uuid.uuid4().hex[:12]}"


MUTANTS = {
    **{title: (*change, explain) for title, change in MUTANTS_OF_EXPLANATIONS.items()},
    **{title: (*change, change_settings) for title, change in MUTANTS_OF_SETTINGS.items()},
}


@pytest.mark.parametrize("title", MUTANTS)
def test_the_text_of_a_mutant_occurs_in_the_lua_once(title: str) -> None:
    old, new, _ = MUTANTS[title]
    assert old != new
    assert loader.source(testing=True).count(old) == 1, old


@pytest.mark.slow
@pytest.mark.untidy
@pytest.mark.timeout(300)
@pytest.mark.parametrize("check", [explain, change_settings])
async def test_the_checks_pass_without_a_defect(check: Check) -> None:
    await check()


@pytest.mark.slow
@pytest.mark.untidy
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the checks that fail
@pytest.mark.parametrize("title", MUTANTS)
async def test_a_test_detects_the_defect(title: str, with_library: Callable[[str], None]) -> None:
    old, new, check = MUTANTS[title]
    with_library(loader.source(testing=True).replace(old, new))
    with pytest.raises(DETECTED):
        await check()
