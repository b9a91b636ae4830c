"""The server's time for each single call, from its slow log. A mean would hide the one call that blocks all others."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

from glidemq_async.functions.loader import function_name
from glidemq_async.storage.redis.wire import Wire, as_list

from .meter import Metrics, Rows, latency_metrics
from .server import ask

KEPT: Final = 100_000
NOTED: Final = 1_000
"""The microseconds from which a call is noted. Shorter ones are not, because a note costs time as well."""
LONGEST: Final = "longest call: "
"""The prefix of the rows of the longest function calls."""
LONGEST_COMMAND: Final = "longest command: "
"""The prefix of the rows of the longest commands of the bare loop."""
LOOP_COMMANDS: Final = frozenset({"XADD", "XREADGROUP", "XACK", "XDEL"})


class Call(NamedTuple):
    """One command in the slow log, and the function that it calls, or ""."""

    number: int
    command: str
    function: str
    seconds: float


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
    await _note_from(wire, 0)
    before = max((call.number for call in await _calls(wire)), default=-1)
    wanted = None if function is None else function_name(function)
    try:
        yield taken
        taken.seconds += [
            call.seconds
            for call in await _calls(wire)
            if call.number > before and call.function and (wanted is None or call.function == wanted)
        ]
        if not taken.seconds:
            raise RuntimeError(f"the slow log contains no call of {function or 'any function'}; the run is void")
    finally:
        await _note_from(wire, NOTED)


@contextlib.asynccontextmanager
async def longest_calls(wire: Wire, name: str) -> AsyncGenerator[Rows]:
    """Note the longest call of each function, and of each command of the bare loop, as a row.

    The rows are available after the block.
    """
    rows: Rows = {}
    await ask(wire, "SLOWLOG", "RESET")
    await _note_from(wire, NOTED)
    yield rows
    for call in await _calls(wire):
        if call.function or call.command in LOOP_COMMANDS:
            title = f"{LONGEST}{call.function}" if call.function else f"{LONGEST_COMMAND}{call.command}"
            row = rows.setdefault(f"{title}, {name}", {"most_us": 0.0})
            row["most_us"] = max(row["most_us"], call.seconds * 1e6)


async def _note_from(wire: Wire, microseconds: int) -> None:
    await ask(wire, "CONFIG", "SET", "slowlog-max-len", KEPT, "slowlog-log-slower-than", microseconds)


async def _calls(wire: Wire) -> list[Call]:
    found: list[Call] = []
    for item in as_list(await ask(wire, "SLOWLOG", "GET", -1)) or []:
        number, _, microseconds, line, *_ = as_list(item) or []
        words = as_list(line) or []
        assert isinstance(number, int)
        assert isinstance(microseconds, int)
        command, function = (word.decode() if isinstance(word, bytes) else "" for word in (*words, b"")[:2])
        found.append(Call(number, command, function if command == "FCALL" else "", microseconds / 1e6))
    return found
