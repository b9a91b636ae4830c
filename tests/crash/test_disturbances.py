"""Clocks jump, links are slow and permissions are few. Every acknowledged job runs and ends once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crash.marks import bounded
from tests.crash.scenarios import FAILOVERS, TRIALS, Scenario

pytestmark = pytest.mark.crash


CHOSEN = [trial for trial in TRIALS if trial not in FAILOVERS]


@pytest.mark.parametrize("trial", [pytest.param(one, id=one.name, marks=bounded(one)) for one in CHOSEN])
def test_disturbances_of_the_server_or_its_link_lose_and_double_nothing(trial: Scenario[Any], seed: int) -> None:
    outcome = trial.run(seed)
    assert outcome.faults() == [], outcome.line
