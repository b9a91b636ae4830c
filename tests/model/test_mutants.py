"""The machine can fail: it detects each of many small defects in the Lua within a few thousand steps."""

from __future__ import annotations

import pytest

from tests.model.driver import Driver
from tests.model.mutant_lists import DAILY, RARE
from tests.model.mutants import MUTANTS
from tests.model.running import has_difference, library

SEEDS = range(1, 13)
BUDGET = 9_000
"""Steps from each seed. Most defects are detected after a few hundred steps from the first seed."""
RARE_BUDGET = 40_000


def each() -> list[object]:
    """Return the names of the mutants, and mark those that only the nightly run tries."""
    return [name if name in DAILY else pytest.param(name, marks=pytest.mark.slow) for name in MUTANTS]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", each())
def test_the_machine_detects_the_defect(driver: Driver, name: str) -> None:
    driver.load(library([MUTANTS[name]]))
    steps = RARE_BUDGET if name in RARE else BUDGET
    assert any(has_difference(driver, steps, number) for number in SEEDS), f"not detected in {len(SEEDS)} runs"
