from __future__ import annotations

import os
import random

import pytest


@pytest.fixture
def seed() -> int:
    """Return GLIDEMQ_CRASH_SEED, or a new seed for each run. A failure shows it in the scenario's line."""
    return int(os.environ.get("GLIDEMQ_CRASH_SEED") or random.SystemRandom().randrange(2**32))
