"""The server's time for each single call, from its slow log. A mean would hide the one call that blocks all others."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Final

from glidemq_async.functions.loader import function_name
from glidemq_async.storage.redis.wire import Wire, as_list

from .meter import Metrics, latency_metrics
from .server import ask

KEPT: Final = 100_000
USUAL_SLOWER_THAN: Final = 10_000


class Durations:
    """The durations of calls in seconds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def metrics(self) -> Metrics:
        """Return percentiles and the maximum, in microseconds."""
        return latency_metrics(self.seconds) | {"most_us": max(self.seconds) * 1e6}


@contextlib.asynccontextmanager
async def durations_of(wire: Wire, function: str | None = None) -> AsyncGenerator[Durations]:
    """Note the duration of every function call, or of the calls of one function. They are available after the block."""
    taken = Durations()
    await ask(wire, "CONFIG", "SET", "slowlog-max-len", KEPT, "slowlog-log-slower-than", 0)
    await ask(wire, "SLOWLOG", "RESET")
    try:
        yield taken
        taken.seconds += await _read(wire, function)
    finally:
        await ask(wire, "CONFIG", "SET", "slowlog-log-slower-than", USUAL_SLOWER_THAN)


async def _read(wire: Wire, function: str | None) -> list[float]:
    found: list[float] = []
    for item in as_list(await ask(wire, "SLOWLOG", "GET", -1)) or []:
        _, _, microseconds, command, *_ = as_list(item) or []
        words = as_list(command) or []
        assert isinstance(microseconds, int)
        if words[0] == b"FCALL" and (function is None or words[1] == function_name(function).encode()):
            found.append(microseconds / 1e6)
    if not found:
        raise RuntimeError(f"the slow log contains no call of {function or 'any function'}; the run is void")
    return found
