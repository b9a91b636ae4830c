"""The machine can fail: each of many small defects in the Lua is noticed within a few thousand steps."""

from __future__ import annotations

import pytest

from glidemq_async.storage.wire import ReplyError
from tests.model.driver import Driver
from tests.model.mutants import MUTANTS, RARE
from tests.model.running import library, run_machine

SEEDS = (1, 2, 3, 4)
BUDGET = 9_000
"""Steps from each seed; most are noticed after some hundred."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in RARE else name for name in MUTANTS]
)
def test_the_machine_notices_that(driver: Driver, name: str) -> None:
    driver.load(library([MUTANTS[name]]))
    with pytest.raises((AssertionError, ReplyError)) as noticed:
        search(driver)
    print(noticed.value)


def search(driver: Driver) -> None:
    for number in SEEDS:
        run_machine(driver, BUDGET, number, shrink=False)
