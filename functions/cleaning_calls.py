"""Typed callers of the functions that remove many jobs, or start many anew: cleaning.lua.

Each is one step: call it with cursor "" first, then with the cursor it returned, until that is "".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from glidemq_async.functions.calling import Caller, text, texts

__all__ = ["CleaningCalls", "ObliterateStep"]

STEP: Final = 500
"""How many jobs one step meets at most; the server ends it earlier when it takes long."""


class ObliterateStep(NamedTuple):
    """One step of `obliterateQueue`; refused: so many jobs run, and nothing was done."""

    cursor: str
    removed: int
    refused: int


class CleaningCalls(Caller):
    """The part of `Functions` that these functions make up."""

    async def drain_jobs(self, cursor: str, *, delayed: bool) -> tuple[str, int]:
        """Remove jobs that wait; returns the next cursor and how many were removed."""
        reply = cast("list[object]", await self.once("drainJobs", [cursor, int(delayed), STEP]))
        return text(reply[0]), cast("int", reply[1])

    async def clean_jobs(self, cursor: str, state: str, grace_ms: int, limit: int) -> tuple[str, list[str]]:
        """Remove jobs that ended so at least grace_ms ago, the oldest first; returns the next cursor and their ids."""
        reply = cast("list[object]", await self.once("cleanJobs", [cursor, state, grace_ms, limit, STEP]))
        return text(reply[0]), texts(reply[1])

    async def clean_unstarted(self, cursor: str, state: str, grace_ms: int, limit: int) -> tuple[str, list[str]]:
        """Remove jobs that wait and were added at least grace_ms ago; returns the next cursor and their ids."""
        reply = cast("list[object]", await self.once("cleanUnstarted", [cursor, state, grace_ms, limit, STEP]))
        return text(reply[0]), texts(reply[1])

    async def promote_jobs(self, cursor: str, limit: int | None) -> tuple[str, int]:
        """Let delayed jobs start, the next due ones first; returns the next cursor and how many were promoted."""
        most = -1 if limit is None else limit
        reply = cast("list[object]", await self.once("promoteJobs", [cursor, most, STEP]))
        return text(reply[0]), cast("int", reply[1])

    async def retry_jobs(self, cursor: str, state: str, limit: int | None) -> tuple[str, int]:
        """Start ended jobs anew, the newest first; returns the next cursor and how many were started."""
        most = -1 if limit is None else limit
        reply = cast("list[object]", await self.once("retryJobs", [cursor, state, most, STEP]))
        return text(reply[0]), cast("int", reply[1])

    async def release_deduplication(self, dedup_id: str) -> bool:
        """Free a deduplication id although its owner has not ended; returns whether it had an owner."""
        return await self.once("releaseDeduplication", [dedup_id]) == 1

    async def obliterate_queue(self, cursor: str, names: Sequence[str], *, force: bool) -> ObliterateStep:
        """Remove jobs in any state, and with the last step the queue's keys of these names."""
        reply = cast("list[object]", await self.once("obliterateQueue", [cursor, int(force), STEP, *names]))
        return ObliterateStep(text(reply[0]), cast("int", reply[1]), cast("int", reply[2]))

    async def sweep_remains(self, names: Sequence[str]) -> None:
        """Remove keys that an obliterated queue left, named without its base, but for those that are in use again."""
        await self._storage.call("sweepRemains", self._base, list(names))
