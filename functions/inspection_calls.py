"""Typed callers of the functions that only read: `reading.lua`, `searching.lua`, `metrics.lua`."""

from __future__ import annotations

from typing import NamedTuple, cast

from glidemq_async.functions.calling import Arg, Caller, text, texts

__all__ = ["InspectionCalls", "MinuteRow", "WorkerRow"]


class MinuteRow(NamedTuple):
    """Figures of one minute: its number since 1970, the jobs that ended, and the total duration of their runs."""

    minute: int
    jobs: int
    run_ms: int


class WorkerRow(NamedTuple):
    """One worker of `listWorkers`. `info` is the description that the worker wrote."""

    name: str
    last_seen: int
    info: bytes
    running: int


class InspectionCalls(Caller):
    """Callers of the functions that only read."""

    async def search_jobs(
        self, state: str, cursor: str, count: int, name: str, *, backwards: bool = False
    ) -> tuple[str, list[str]]:
        """Look at `count` jobs of a state. Return the next cursor and the ids of the jobs with that name."""
        args: list[Arg] = [state, cursor, count, name, int(backwards)]
        cursor_bytes, ids = cast("list[object]", await self.read("searchJobs", args))
        return text(cursor_bytes), texts(ids)

    async def get_deduplication(self, dedup_id: str) -> str:
        """Return the id of the job that owns a deduplication id, "" if it has no owner."""
        return text(await self.read("getDeduplication", [dedup_id]))

    async def get_metrics(self, state: str, start: int | None, end: int | None) -> list[MinuteRow]:
        """Return the minutes from start to end (ms) in which a job reached the state; None: the last 24 hours."""
        bounds = ["" if bound is None else bound for bound in (start, end)]
        rows = cast("list[list[int]]", await self.read("getMetrics", [state, *bounds]))
        return [MinuteRow(*row) for row in rows]

    async def list_workers(self, silent_ms: int) -> list[WorkerRow]:
        """Return the workers that gave a sign of life within `silent_ms`."""
        rows = cast("list[list[object]]", await self.read("listWorkers", [silent_ms]))
        return [
            WorkerRow(text(name), cast("int", seen), cast("bytes", info), cast("int", running))
            for name, seen, info, running in rows
        ]
