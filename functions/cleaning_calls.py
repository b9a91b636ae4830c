"""Typed callers of the functions that remove many jobs, or start many anew: `cleaning.lua`.

Each call is one step. Pass cursor "" first, then the returned cursor, until that is "".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from glidemq_async.functions.calling import Caller, text, texts

__all__ = ["CleaningCalls", "ObliterateStep"]

STEP: Final = 500
"""Maximum number of jobs in one step. The server ends a step earlier when it takes long."""


class ObliterateStep(NamedTuple):
    """One step of `obliterateQueue`. If `refused` is not 0, that many jobs run and the step changed nothing."""

    cursor: str
    removed: int
    refused: int


class CleaningCalls(Caller):
    """Callers of the functions in `cleaning.lua`, and of `releaseDeduplication`."""

    async def drain_jobs(self, cursor: str, *, delayed: bool) -> tuple[str, int]:
        """Remove waiting jobs. Return the next cursor and the number of removed jobs."""
        reply = cast("list[object]", await self.once("drainJobs", [cursor, int(delayed), STEP]))
        return text(reply[0]), cast("int", reply[1])

    async def clean_jobs(self, cursor: str, state: str, grace_ms: int, limit: int) -> tuple[str, list[str]]:
        """Remove jobs that ended in the state at least grace_ms ago, the oldest first. Return cursor and ids."""
        reply = cast("list[object]", await self.once("cleanJobs", [cursor, state, grace_ms, limit, STEP]))
        return text(reply[0]), texts(reply[1])

    async def clean_unstarted(self, cursor: str, state: str, grace_ms: int, limit: int) -> tuple[str, list[str]]:
        """Remove waiting jobs that were added at least grace_ms ago. Return the next cursor and their ids."""
        reply = cast("list[object]", await self.once("cleanUnstarted", [cursor, state, grace_ms, limit, STEP]))
        return text(reply[0]), texts(reply[1])

    async def promote_jobs(self, cursor: str, limit: int | None) -> tuple[str, int]:
        """Let delayed jobs start, the next due ones first. Return the next cursor and the number of promoted jobs."""
        most = -1 if limit is None else limit
        reply = cast("list[object]", await self.once("promoteJobs", [cursor, most, STEP]))
        return text(reply[0]), cast("int", reply[1])

    async def retry_jobs(self, cursor: str, state: str, limit: int | None) -> tuple[str, int]:
        """Start ended jobs anew, the newest first. Return the next cursor and the number of started jobs."""
        most = -1 if limit is None else limit
        reply = cast("list[object]", await self.once("retryJobs", [cursor, state, most, STEP]))
        return text(reply[0]), cast("int", reply[1])

    async def release_deduplication(self, dedup_id: str) -> bool:
        """Free a deduplication id although its owner has not ended. Return True if it had an owner."""
        return await self.once("releaseDeduplication", [dedup_id]) == 1

    async def obliterate_queue(self, cursor: str, names: Sequence[str], *, force: bool) -> ObliterateStep:
        """Remove jobs in any state. The last step also removes the queue's store keys with these names."""
        reply = cast("list[object]", await self.once("obliterateQueue", [cursor, int(force), STEP, *names]))
        return ObliterateStep(text(reply[0]), cast("int", reply[1]), cast("int", reply[2]))

    async def sweep_remains(self, names: Sequence[str]) -> None:
        """Remove store keys (named without the base) of an obliterated queue, unless a new queue uses them."""
        await self.call("sweepRemains", list(names))
