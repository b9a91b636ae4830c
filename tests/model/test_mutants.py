"""The machine can fail: each of many small defects in the Lua is noticed within a few thousand steps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from glidemq_async.storage.wire import ReplyError
from tests.model.driver import Driver
from tests.model.mutants import MUTANTS
from tests.model.running import library, run_machine

BUDGET = 14_000

# Some defects show only on rare paths and take minutes in all: the nightly run has that time.
pytestmark = pytest.mark.slow


@pytest.fixture
def mutant(driver: Driver, request: pytest.FixtureRequest) -> Iterator[Driver]:
    driver.load(library([MUTANTS[request.param]]))
    yield driver
    driver.load()


@pytest.mark.parametrize("mutant", list(MUTANTS), indirect=True)
def test_the_machine_notices_that(mutant: Driver) -> None:
    with pytest.raises((AssertionError, ReplyError)) as noticed:
        run_machine(mutant, BUDGET, 1, shrink=False)
    print(noticed.value)
