"""Runs all scenarios in rounds (A B C, C B A, A B C ...), each sample in a separate process."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Final, cast

from glidemq_async.storage.embedded.binary import find_server

from .figures import MeasuredRows
from .meter import Rows
from .scenarios import SCENARIOS, Scenario
from .server import running_server, tcp_server
from .sizes import Sizes


def _unix(*options: str) -> Callable[[], AbstractContextManager[str]]:
    return lambda: running_server(*options)


SERVERS: Final[dict[str, Callable[[], AbstractContextManager[str]]]] = {
    "embedded": _unix(),
    "persistent": _unix("--appendonly", "yes", "--appendfsync", "everysec"),
    "redis": lambda: tcp_server(shutil.which("redis-server") or "redis-server"),
    "valkey": lambda: tcp_server(find_server()),
}
"""The servers by the name that a scenario uses. The first two listen on a unix socket, the others on TCP."""


class SampleFailed(Exception):
    """A sample ended without figures. Its process has printed the reason."""


def in_turns(scenarios: Sequence[Scenario], number: int) -> list[Scenario]:
    """Return the scenarios of one round. Every second round runs backwards, so that a drift favours no side."""
    chosen = [scenario for scenario in scenarios if number < scenario.rounds]
    return chosen[::-1] if number % 2 else chosen


async def run_suite(
    sizes: Sizes, rounds: int, scenarios: Sequence[Scenario] = SCENARIOS, progress: Callable[[str], None] = print
) -> MeasuredRows:
    """Measure all scenarios; return the figures of every round."""
    figures = MeasuredRows()
    with ExitStack() as stack:
        urls = {name: stack.enter_context(SERVERS[name]()) for name in {scenario.server for scenario in scenarios}}
        for number in range(rounds):
            for scenario in in_turns(scenarios, number):
                name = f"round {number + 1}/{rounds}: {scenario.run}{scenario.suffix}"
                progress(name)
                try:
                    figures.add(number, await _sample(urls[scenario.server], scenario, sizes), scenario.suffix)
                except SampleFailed as error:  # the figures of the others took minutes
                    figures.failures.append(f"{name}: {error}")
                    progress(f"!!! {figures.failures[-1]}")
    return figures


async def _sample(url: str, scenario: Scenario, sizes: Sizes) -> Rows:
    arguments = [url, scenario.run, *(str(size) for size in scenario.sizes(sizes))]
    python = scenario.python or sys.executable
    process = await asyncio.create_subprocess_exec(python, "-m", "benchmarks.child", *arguments, stdout=PIPE)
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise SampleFailed(f"the process ended with status {process.returncode}")
    return cast("Rows", json.loads(output))
