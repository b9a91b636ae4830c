"""Typed call of the function that reads the figures of minutes: `metrics.lua`."""

from __future__ import annotations

from typing import NamedTuple, cast

from glidemq_async.functions.calling import Calls


class MinuteRow(NamedTuple):
    """Figures of one minute: its number since 1970, the jobs that ended, and the total duration of their runs."""

    minute: int
    jobs: int
    run_ms: int


class MetricsCalls(Calls):
    """Calls of the functions in `metrics.lua`."""

    __slots__ = ()

    async def get(self, state: str, start: int | None, end: int | None) -> list[MinuteRow]:
        """Return the minutes from start to end (ms) in which a job reached the state; None: the last 24 hours."""
        bounds = ["" if bound is None else bound for bound in (start, end)]
        rows = cast("list[list[int]]", await self._caller.read("getMetrics", [state, *bounds]))
        return [MinuteRow(*row) for row in rows]
