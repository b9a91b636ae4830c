from __future__ import annotations

import random

import pytest


@pytest.fixture
def seed() -> int:
    """Return a new seed for each run. A failure shows it in the scenario's line."""
    return random.SystemRandom().randrange(2**32)
