"""The function library does what the model says, over many thousand random steps.

`GLIDEMQ_MODEL_STEPS` sets the number of steps (100,000 in `make nightly`), `GLIDEMQ_MODEL_SEED` repeats a run.
`GLIDEMQ_MODEL_SHRINK=0` reports a difference without the minutes that Hypothesis spends on a shorter example.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.model.driver import Driver
from tests.model.running import library, run_machine

STEPS = int(os.environ.get("GLIDEMQ_MODEL_STEPS", "12000"))
SEED = os.environ.get("GLIDEMQ_MODEL_SEED")
SHRINK = os.environ.get("GLIDEMQ_MODEL_SHRINK", "1") != "0"
PARTS = 6


@pytest.mark.timeout(600 + STEPS // 100)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_functions_agree_with_the_model(driver: Driver, part: int) -> None:
    driver.load(library())
    # Each part has its own seed. The printed line repeats the part.
    number = int(SEED) if SEED else random.SystemRandom().getrandbits(32)
    print(f"GLIDEMQ_MODEL_SEED={number} GLIDEMQ_MODEL_STEPS={STEPS}")
    taken = run_machine(driver, STEPS // PARTS, number + part, shrink=SHRINK)
    print(f"{taken} steps")
    assert taken >= STEPS // PARTS * 5 // 6
