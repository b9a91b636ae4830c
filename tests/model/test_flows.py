"""Random flows keep their rules, and the machine detects defects of plans.lua, flow_jobs.lua and flows.lua."""

from __future__ import annotations

from typing import Final

import pytest

from glidemq_async.storage.redis.wire import ReplyError
from tests.crash.size import scaled
from tests.model.driver import Driver
from tests.model.flow_machine import run_flows
from tests.model.flow_mutants import FLOW_MUTANTS
from tests.model.running import library

STEPS: Final = 150
SEEDS: Final = 20
FLOWS: Final = 2_000
"""Random flows of a day, divided into parts that may run in different processes. A night has nine times as many."""
PARTS: Final = 2
NIGHT_PARTS: Final = 18
MUTANT_SEEDS: Final = 60
RARE: Final = frozenset(
    {
        "the failure of an added child is forgotten while its parent runs",
        "the children of a run that is revoked start",
    }
)
"""Mutants that need many flows to be detected. Only the nightly run tries them."""


def load(driver: Driver, changes: list[tuple[str, str]]) -> None:
    driver.load(library(changes))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_flows_come_to_their_end(driver: Driver, seed: int) -> None:
    load(driver, [])
    assert run_flows(driver, seed, STEPS) > 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=pytest.mark.slow) if part >= PARTS else part for part in range(NIGHT_PARTS)]
)
def test_thousands_of_random_flows_come_to_their_end(driver: Driver, part: int) -> None:
    load(driver, [])
    run_many(driver, FLOWS // PARTS, 1_000_000 * (part + 1), is_quick=True)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_more_random_flows_keep_every_invariant(driver: Driver) -> None:
    load(driver, [])
    run_many(driver, scaled(20_000), 1_000, is_quick=False)


def run_many(driver: Driver, flows: int, seed: int, *, is_quick: bool) -> None:
    """Run at least this many flows."""
    while flows > 0:
        flows -= run_flows(driver, seed, STEPS, is_quick=is_quick)
        seed += 1


@pytest.mark.parametrize("name", FLOW_MUTANTS)
def test_the_text_of_a_mutant_occurs_in_the_lua_once(name: str) -> None:
    old, new = FLOW_MUTANTS[name]
    assert old != new
    assert library().count(old) == 1, old


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in RARE else name for name in FLOW_MUTANTS]
)
def test_random_flows_detect_the_defect(driver: Driver, name: str) -> None:
    load(driver, [FLOW_MUTANTS[name]])
    with pytest.raises((AssertionError, ReplyError, ValueError)):
        search(driver)


def search(driver: Driver) -> None:
    for seed in range(MUTANT_SEEDS):
        run_flows(driver, seed, STEPS)
