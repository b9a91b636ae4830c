"""The present speed of the processor, for the few limits that are times. A full cloud host slows it."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final

LOOP_SECONDS = 0.06
"""Processor time of the loop below on the machine for which the limits were set."""


def slowness() -> float:
    """Return how many times slower this machine is than the reference machine; at least 1."""
    start, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number
    return max(1.0, (time.process_time() - start) / LOOP_SECONDS)


def crowding() -> float:
    """Return how many times longer than its processor time a busy process takes now, because others share the cores.

    At least 1. For limits of times in which a process is never idle.
    """
    start, spent = time.perf_counter(), time.process_time()
    while time.process_time() - spent < CROWDING_SECONDS:
        pass
    return max(1.0, (time.perf_counter() - start) / (time.process_time() - spent))


CROWDING_SECONDS: Final = 0.1
"""Processor time after which the other processes of a busy machine have had their turns."""

BARE_SECONDS: Final = 0.09
"""The time of `bare_start` on the reference machine."""
_BARE = (sys.executable, "-c", "import asyncio, ssl, json, typing, http.client, logging.config")


def bare_start() -> float:
    """Return the seconds that an interpreter needs to import a large part of the standard library and end."""
    began = time.perf_counter()
    subprocess.run(_BARE, check=True)
    return time.perf_counter() - began
