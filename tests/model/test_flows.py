"""Random flows keep their rules, and the machine detects defects of flows.lua."""

from __future__ import annotations

from typing import Final

import pytest

from glidemq_async.storage.redis.wire import ReplyError
from tests.model.driver import Driver
from tests.model.flow_machine import run_flows
from tests.model.flow_mutants import FLOW_MUTANTS
from tests.model.running import library

STEPS: Final = 150
SEEDS: Final = 20
MUTANT_SEEDS: Final = 60


def load(driver: Driver, changes: list[tuple[str, str]]) -> None:
    driver.load(library(changes))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_flows_come_to_their_end(driver: Driver, seed: int) -> None:
    load(driver, [])
    assert run_flows(driver, seed, STEPS) > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_thousand_random_flows_come_to_their_end(driver: Driver) -> None:
    load(driver, [])
    flows, seed = 0, 1_000
    while flows < 20_000:
        flows += run_flows(driver, seed, STEPS)
        seed += 1


@pytest.mark.parametrize("name", FLOW_MUTANTS)
def test_the_text_of_a_mutant_occurs_in_the_lua_once(name: str) -> None:
    old, new = FLOW_MUTANTS[name]
    assert old != new
    assert library().count(old) == 1, old


@pytest.mark.parametrize("name", FLOW_MUTANTS)
def test_random_flows_detect_the_defect(driver: Driver, name: str) -> None:
    load(driver, [FLOW_MUTANTS[name]])
    with pytest.raises((AssertionError, ReplyError, ValueError)):
        search(driver)


def search(driver: Driver) -> None:
    for seed in range(MUTANT_SEEDS):
        run_flows(driver, seed, STEPS)
