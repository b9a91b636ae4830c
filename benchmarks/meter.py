"""Measures wall time, processor time of this process, and server time of a block of code."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias

from glidemq_async.storage.redis.wire import Wire

from .server import ServerCost

Metrics: TypeAlias = dict[str, float]
"""Named figures of one row: rate (jobs/s), client_us, command_us, server_us (per job), p50_us, p99_us and others."""

Rows: TypeAlias = dict[str, Metrics]

FUNCTION_CALLS: Final = ("fcall", "fcall_ro")


class CostMeter:
    """Measures the body of an `async with`. The figures are available afterwards.

    `commands` names the commands whose time is added up as server time. Name only commands that the client sends: the
    server already includes the commands of a function in the time of the function.
    """

    def __init__(self, wire: Wire, commands: Sequence[str] = FUNCTION_CALLS) -> None:
        self._wire = wire
        self._commands = commands
        self.seconds = self.client_seconds = 0.0
        self.cost = ServerCost(0.0, {}, {})

    async def __aenter__(self) -> Self:
        gc.collect()
        self._before = await ServerCost.read(self._wire)
        self._processor, self._started = time.process_time(), time.perf_counter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._started
        self.client_seconds = time.process_time() - self._processor
        self.cost = (await ServerCost.read(self._wire)).since(self._before)

    @property
    def calls(self) -> int:
        """Return how many of the counted commands the server executed."""
        return sum(self.cost.calls.get(command, 0) for command in self._commands)

    def metrics(self, jobs: int, latencies: Sequence[float] = ()) -> Metrics:
        """Return the figures per job; latencies in seconds."""
        command_seconds = sum(self.cost.seconds.get(command, 0.0) for command in self._commands)
        found = {
            "rate": jobs / self.seconds,
            "client_us": self.client_seconds / jobs * 1e6,
            "command_us": command_seconds / jobs * 1e6,
            "server_us": self.cost.processor / jobs * 1e6,
            "calls": self.calls / jobs,
        }
        return found | latency_metrics(latencies)

    def inner(self, jobs: int) -> Metrics:
        """Return the microseconds per job of each command, including commands inside functions."""
        return {name: seconds / jobs * 1e6 for name, seconds in self.cost.seconds.items() if seconds}


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least `percent` of all values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def latency_metrics(seconds: Sequence[float]) -> Metrics:
    """Return p50 and p99 in microseconds, or nothing when there are no values."""
    if not seconds:
        return {}
    return {"p50_us": percentile(seconds, 50) * 1e6, "p99_us": percentile(seconds, 99) * 1e6}
