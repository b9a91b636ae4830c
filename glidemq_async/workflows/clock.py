"""The clock of the worker's host, by which workflows measure their waits."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the milliseconds since the epoch."""
    return round(time.time() * 1000)
