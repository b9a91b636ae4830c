"""The sizes of the steps in which a call adds or claims jobs."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

import pytest

from tests.support.stores import RunningStore

BUDGET: Final = files("glidemq_async.functions").joinpath("budget.lua").read_text(encoding="utf-8")
CLOCK: Final = "local now = 0\nlocal os = {clock = function() return now end}\n"
NEXT_STEP: Final = """
local call_budget = budget.new()
now = ARGV[1] / 1000000
return budget.fitting(call_budget, tonumber(ARGV[2]), 64)
"""
LEAST: Final = 16
LONGEST_US: Final = 4_000
"""A call has more work after its last step, and must end within 5 ms."""
GROWTH: Final = 6
"""How many times longer keyed jobs took at most when the tables of a server grew. Measured with 1,000,000 keys."""


STEPS: Final = [
    (added, job_us)
    for added in (16, 40, 104, 150, 220)
    for job_us in (2, 8, 12, 25, 60)
    if added * job_us < LONGEST_US // 2  # otherwise the call has ended
]


@pytest.mark.parametrize(("added", "job_us"), STEPS)
async def test_a_step_during_which_tables_grow_ends_in_time(store: RunningStore, added: int, job_us: int) -> None:
    lasted = added * job_us
    step = await store.ask("EVAL", CLOCK + BUDGET + NEXT_STEP, 0, lasted, added)
    assert isinstance(step, int)
    assert LEAST <= step <= 64
    assert step == LEAST or lasted + step * job_us * GROWTH <= LONGEST_US


@pytest.mark.parametrize("job_us", [2, 6])
async def test_steps_of_cheap_jobs_are_large(store: RunningStore, job_us: int) -> None:
    assert await store.ask("EVAL", CLOCK + BUDGET + NEXT_STEP, 0, 40 * job_us, 40) == 64


CLAIM_STEP: Final = """
local call_budget = budget.new()
now = ARGV[1] / 1000000
budget.begin_claim(call_budget)
now = now + ARGV[2] / 1000000 * ARGV[3]
if budget.has_claimed_enough(call_budget) then return 0 end
return budget.fitting_claim(call_budget, tonumber(ARGV[2]), 64)
"""
CLAIMED_US: Final = 2_000
"""The time after which a call claims no more jobs."""
CLAIMS: Final = [
    (settled_us, job_us)
    for settled_us in (0, 500, 1_000, 1_500)
    for job_us in (3, 10, 20, 40)
    if settled_us + 32 * job_us < CLAIMED_US  # otherwise the claim has ended
]


@pytest.mark.parametrize(("settled_us", "job_us"), CLAIMS)
async def test_a_claim_takes_as_many_jobs_as_fit_into_the_rest_of_its_time(
    store: RunningStore, settled_us: int, job_us: int
) -> None:
    step = await store.ask("EVAL", CLOCK + BUDGET + CLAIM_STEP, 0, settled_us, 32, job_us)
    fit = (CLAIMED_US - settled_us - 32 * job_us) // job_us
    assert isinstance(step, int)
    assert abs(step - min(64, max(LEAST, fit))) <= 1  # the clock has fractions
