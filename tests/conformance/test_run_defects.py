"""Defects of runs outside of the stream that random steps seldom show: the tests of their scenarios notice them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from glidemq_async import JobOptions
from glidemq_async.functions import loader
from glidemq_async.storage import MemoryStorage
from glidemq_async.storage.redis.library import Library
from tests.behaviour import test_clock_set_back as set_back
from tests.conformance import test_compact_claims, test_keys, test_lost_runs, test_old_runs, test_runs
from tests.model.run_mutants import DEFECTS_OF_RUNS
from tests.support.clocked_queue import HOUR, Timed
from tests.support.clocked_queue import timed as timed_queue

Scenario: TypeAlias = Callable[[Timed], Awaitable[None]]


async def lost_run(timed: Timed) -> None:
    await test_lost_runs.test_an_outcome_frees_the_key_of_a_lost_job_and_not_the_one_of_a_removed_job(
        timed.queue, timed.store, timed.fake_worker, completes=True
    )


async def lost_run_without_key(timed: Timed) -> None:
    await test_lost_runs.test_an_outcome_without_the_key_frees_the_key_of_a_lost_job(
        timed.queue, timed.store, timed.fake_worker
    )


async def old_run(timed: Timed) -> None:
    await test_old_runs.test_a_sweep_returns_the_runs_of_an_earlier_build(
        timed.queue, timed.store, timed.fake_worker, "keyed", has_text=False
    )


async def stale_outcome(timed: Timed) -> None:
    await test_keys.test_regression_a_stale_outcome_frees_no_slot_of_another_run(timed, timed.queue.name)


async def verified_call(timed: Timed) -> None:
    await test_runs.test_a_verified_call_ends_no_run_of_another_worker(timed, "keyed")


async def start_together(timed: Timed) -> None:
    await test_compact_claims.test_jobs_that_start_together_are_complete(timed.queue, timed.fake_worker, "lifo")


async def repeated_claim(timed: Timed) -> None:
    await test_compact_claims.test_a_repeated_claim_returns_the_same_jobs_and_starts_no_others(
        timed.queue, timed.fake_worker, "lifo"
    )


async def own_lease(timed: Timed) -> None:
    await test_compact_claims.test_a_job_has_its_own_lease(timed.queue, timed.fake_worker, "lifo")


async def named_runs(timed: Timed) -> None:
    await test_runs.test_only_the_named_runs_are_renewed(timed, "lifo")


async def closed_worker(timed: Timed) -> None:
    await test_runs.test_a_closed_worker_returns_its_runs_in_their_order(timed, "lifo")


async def clock_set_back(timed: Timed) -> None:
    await timed.clock.advance(HOUR)
    await timed.fake_worker.first_sweep(set_back.GAP)
    await set_back.test_a_run_outside_of_fifo_is_reclaimed_within_its_lease(
        timed, JobOptions(lifo=True), is_renewed=False
    )


IS_ENOUGH = "local function is_enough(call_budget, call)\n"
ENDS_EARLY = (IS_ENOUGH, f"{IS_ENOUGH}  if true then return true end\n")
"""A call of a sweep has no time left after the first run that it looks at."""
ENDS_LATE = (IS_ENOUGH, f"{IS_ENOUGH}  if true then return false end\n")
"""A call of a sweep has time for everything."""


async def interrupted_sweeps(timed: Timed) -> None:
    await test_runs.test_a_sweep_ends_the_expired_runs_among_renewed_ones(timed)


async def complete_sweeps(timed: Timed) -> None:
    await test_runs.test_a_sweep_ends_the_expired_runs_among_renewed_ones(timed)


CONDITIONS: dict[Scenario, tuple[str, str]] = {interrupted_sweeps: ENDS_EARLY, complete_sweeps: ENDS_LATE}

SCENARIOS: dict[str, Scenario] = {
    "the end of lost leases releases their keys": stale_outcome,
    "a run whose job has lost its record is not found": lost_run_without_key,
    "a key of a run whose job has lost its record stays busy": lost_run,
    "a sweep passes over the run behind one that it has ended": complete_sweeps,
    "an interrupted sweep passes over the run behind one that it has ended": interrupted_sweeps,
    "an interrupted sweep passes over the run behind a member that was written by hand": interrupted_sweeps,
    "the number of a worker is forgotten while it has runs": (
        test_runs.test_a_silent_worker_is_known_as_long_as_it_has_a_run
    ),
    "a sweep returns no run of an earlier build": old_run,
    "a returned run of an earlier build keeps its key": old_run,
    "a verified call ends a run of another worker": verified_call,
    "compact jobs that start together have no events": start_together,
    "compact jobs that start together have a wrong lease": named_runs,
    "compact jobs with a lease of their own start with others": own_lease,
    "the reply to a repeated claim names one of the jobs that started together": repeated_claim,
    "returned jobs of a claim start in any order": closed_worker,
    "a lease that began in the future goes on": clock_set_back,
}


async def play(scenario: Scenario, name: str, *changes: tuple[str, str]) -> None:
    source = loader.source(testing=True)
    condition = CONDITIONS.get(scenario)
    for old, new in (*changes, condition) if condition else changes:
        assert old in source
        source = source.replace(old, new)
    library = Library(source, loader.build_version(testing=True))
    async with MemoryStorage(library=library) as storage:
        timed = timed_queue(storage, name)
        async with timed.queue:
            await scenario(timed)


@pytest.mark.parametrize("defect", DEFECTS_OF_RUNS)
async def test_a_defect_is_noticed(defect: str, name: str) -> None:
    with pytest.raises((AssertionError, ValueError)):  # a ValueError: a claim returned another number of jobs
        await play(SCENARIOS[defect], name, DEFECTS_OF_RUNS[defect])


@pytest.mark.parametrize("scenario", dict.fromkeys(SCENARIOS.values()), ids=lambda one: one.__name__)
async def test_each_scenario_passes_without_a_defect(scenario: Scenario, name: str) -> None:
    await play(scenario, name)
