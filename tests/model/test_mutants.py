"""The machine can fail: each of many small defects in the Lua is noticed within a few thousand steps."""

from __future__ import annotations

import pytest

from glidemq_async.storage.redis.wire import ReplyError
from tests.model.driver import Driver
from tests.model.mutants import MUTANTS, RARE
from tests.model.running import library, run_machine

SEEDS = (1, 2, 3, 4)
BUDGET = 9_000
"""Steps from each seed; most are noticed after some hundred."""
RARE_BUDGET = 40_000
SHARE = 3
"""Every third one is tried at each run, the others, and those that take long, at night."""


def each() -> list[object]:
    """The names, the slow ones marked."""
    slow = {name for position, name in enumerate(MUTANTS) if name in RARE or position % SHARE}
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in MUTANTS]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", each())
def test_the_machine_notices_that(driver: Driver, name: str) -> None:
    driver.load(library([MUTANTS[name]]))
    with pytest.raises((AssertionError, ReplyError)) as noticed:
        search(driver, RARE_BUDGET if name in RARE else BUDGET)
    print(noticed.value)


def search(driver: Driver, steps: int) -> None:
    for number in SEEDS:
        run_machine(driver, steps, number, shrink=False)
