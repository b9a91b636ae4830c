"""Random topics keep their rules, and the machine detects defects of topics.lua and feeds.lua."""

from __future__ import annotations

from typing import Final

import pytest

from glidemq_async.storage.redis.wire import ReplyError
from tests.model.driver import Driver
from tests.model.running import library
from tests.model.topic_machine import run_topics
from tests.model.topic_mutants import TOPIC_MUTANTS

STEPS: Final = 300
SEEDS: Final = 20
MUTANT_SEEDS: Final = 20


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_subscription_gets_the_messages_that_fit(driver: Driver, seed: int) -> None:
    driver.load(library())
    assert run_topics(driver, seed, STEPS) > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_random_topics_keep_their_rules(driver: Driver) -> None:
    driver.load(library())
    for seed in range(1_000, 2_000):
        assert run_topics(driver, seed, STEPS) > 0, seed


@pytest.mark.parametrize("name", TOPIC_MUTANTS)
def test_the_text_of_a_mutant_occurs_in_the_lua_once(name: str) -> None:
    old, new = TOPIC_MUTANTS[name]
    assert old != new
    assert library().count(old) == 1, old


@pytest.mark.parametrize("name", TOPIC_MUTANTS)
def test_random_topics_detect_the_defect(driver: Driver, name: str) -> None:
    driver.load(library([TOPIC_MUTANTS[name]]))
    with pytest.raises((AssertionError, ReplyError, ValueError)):
        search(driver)


def search(driver: Driver) -> None:
    for seed in range(MUTANT_SEEDS):
        run_topics(driver, seed, STEPS)
