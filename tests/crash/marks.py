"""The time limits of the tests that run a scenario."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crash.scenarios import Scenario
from tests.crash.size import PATIENCE


def bounded(scenario: Scenario[Any]) -> pytest.MarkDecorator:
    """A pytest limit above the scenario's own limits, which give better messages."""
    limit: float = scenario.size.seconds + 2 * PATIENCE
    return pytest.mark.timeout(limit)
