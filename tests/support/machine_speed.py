"""How slow the processor is just now, for the few limits that are a time: clouds give less of it when they are full."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final

LOOP_SECONDS = 0.06
"""Processor time of the loop below on the machine where the limits were set."""


def slowness() -> float:
    """How many times slower this machine is than that one; at least 1."""
    start, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number
    return max(1.0, (time.process_time() - start) / LOOP_SECONDS)


BARE_SECONDS: Final = 0.09
"""What `bare_start` takes on that machine."""
_BARE = (sys.executable, "-c", "import asyncio, ssl, json, typing, http.client, logging.config")


def bare_start() -> float:
    """How many seconds an interpreter takes that imports a good part of the standard library and ends."""
    began = time.perf_counter()
    subprocess.run(_BARE, check=True)
    return time.perf_counter() - began
