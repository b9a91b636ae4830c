"""The machine can fail: it detects each of many small defects in the Lua within a few thousand steps."""

from __future__ import annotations

import pytest

from tests.model.driver import Driver
from tests.model.mutants import MUTANTS, RARE
from tests.model.running import has_difference, library

SEEDS = range(1, 13)
BUDGET = 9_000
"""Steps from each seed. Most defects are detected after a few hundred steps from the first seed."""
RARE_BUDGET = 40_000
SHARE = 3
"""Each run tries every third defect. The nightly run tries the others and the slow ones."""


def each() -> list[object]:
    """Return the names of the mutants, and mark the slow ones."""
    slow = {name for position, name in enumerate(MUTANTS) if name in RARE or position % SHARE}
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in MUTANTS]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", each())
def test_the_machine_detects_the_defect(driver: Driver, name: str) -> None:
    driver.load(library([MUTANTS[name]]))
    steps = RARE_BUDGET if name in RARE else BUDGET
    assert any(has_difference(driver, steps, number) for number in SEEDS), f"not detected in {len(SEEDS)} runs"
