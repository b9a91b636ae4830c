"""Runs all scenarios in rounds (A B C A B C ...), each sample in a separate process."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import cast

from .figures import MeasuredRows
from .meter import Rows
from .scenarios import SCENARIOS, Scenario
from .server import running_server
from .sizes import Sizes


async def run_suite(
    sizes: Sizes, rounds: int, scenarios: Sequence[Scenario] = SCENARIOS, progress: Callable[[str], None] = print
) -> MeasuredRows:
    """Measure all scenarios; return the figures of every round."""
    figures = MeasuredRows()
    with ExitStack() as stack:
        plain = stack.enter_context(running_server())
        persistent = None
        if any(scenario.persistent for scenario in scenarios):
            persistent = stack.enter_context(running_server("--appendonly", "yes", "--appendfsync", "everysec"))
        for number in range(rounds):
            for scenario in scenarios:
                if number >= scenario.rounds:
                    continue
                progress(f"round {number + 1}/{rounds}: {scenario.run}{scenario.suffix}")
                socket = persistent if scenario.persistent and persistent else plain
                figures.add(number, await _sample(socket, scenario, sizes), scenario.suffix)
    return figures


async def _sample(socket: str, scenario: Scenario, sizes: Sizes) -> Rows:
    arguments = [socket, scenario.run, *(str(size) for size in scenario.sizes(sizes))]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "benchmarks.child", *arguments, stdout=PIPE)
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"the sample of {scenario.run} failed with status {process.returncode}")
    return cast("Rows", json.loads(output))
