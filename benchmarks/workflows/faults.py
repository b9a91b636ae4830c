"""Signals, topics and streams under faults: runs the crash tests in their full size, each in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Final, NamedTuple

from benchmarks.report import ROOT
from benchmarks.workflows.figures import Figure


class _Test(NamedTuple):
    """A crash test, and the factor by which the full size exceeds its size at each push."""

    name: str
    node: str
    factor: float


FULL: Final = (
    _Test(
        "topic: 5 subscriptions, 100,000 messages, killed workers; messages that are lost or doubled",
        "test_topics.py::test_killed_workers_lose_and_double_no_message",
        5,
    ),
    _Test(
        "signals before, during and after suspensions, 100,000 over cut connections; lost or received twice",
        "test_signals.py::test_each_signal_is_received_once_and_in_order",
        100_000 / 6_000,
    ),
    _Test(
        "1,000 readers of streams, cut connections, replaced workers; chunks that are missing or doubled",
        "test_streams.py::test_no_reader_misses_or_repeats_a_chunk[1000]",
        1,
    ),
    _Test(
        "runs that are warm in killed workers; steps that are recorded twice, and runs that do not end",
        "test_warm_runs.py::test_runs_of_a_killed_worker_go_on_in_another_one",
        2,
    ),
)
LONGEST: Final = 1_200.0
"""Seconds after which a test is stopped."""


async def measure(scale: float) -> list[Figure]:
    """Return for each test whether it has found a fault, and the time that it has taken."""
    return [figure for test in FULL for figure in await _run(test, scale)]


async def _run(test: _Test, scale: float) -> list[Figure]:
    sizes = os.environ | {"GLIDEMQ_CRASH_SCALE": str(test.factor * scale)}
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--no-header")
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *command, f"tests/crash/{test.node}", cwd=ROOT, env=sizes, stdout=sys.stderr
    )
    try:
        code = await asyncio.wait_for(process.wait(), LONGEST)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    name = test.name if scale == 1 else f"{test.name} (size {scale:g})"
    return [
        Figure(name, int(code != 0), "failed tests", most=0),
        Figure(f"time of this test, {test.node.partition('::')[0]}", time.perf_counter() - began, "s"),
    ]
