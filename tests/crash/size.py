"""The size of the crash tests: GLIDEMQ_CRASH_SCALE multiplies the size of the run at each push (1)."""

from __future__ import annotations

import os
from typing import Final

SCALE: Final = float(os.environ.get("GLIDEMQ_CRASH_SCALE") or 1)
#: The time for starting, draining and checking, in addition to the part that grows with the scale. It only ends a run
#: that hangs, so it is much longer than a busy machine needs.
PATIENCE: Final = 90.0


def scaled(figure: int) -> int:
    """Return a number of kills, jobs or cuts for this run."""
    return max(1, round(figure * SCALE))


def seconds(figure: float) -> float:
    """Return a time limit for this run."""
    return PATIENCE + figure * SCALE
