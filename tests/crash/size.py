"""How large the crash tests are: GLIDEMQ_CRASH_SCALE multiplies what runs on every push (1)."""

from __future__ import annotations

import os
from typing import Final

SCALE: Final = float(os.environ.get("GLIDEMQ_CRASH_SCALE") or 1)
#: What starting, draining and proving take beside the part that grows.
PATIENCE: Final = 30.0


def scaled(figure: int) -> int:
    """A number of kills, jobs or cuts for this run."""
    return max(1, round(figure * SCALE))


def seconds(figure: float) -> float:
    """A time limit for this run."""
    return PATIENCE + figure * SCALE
