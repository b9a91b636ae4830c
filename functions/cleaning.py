"""Typed calls of the functions that remove many jobs, or start many again: `cleaning.lua`.

Each call is one step. Pass cursor "" first, then the returned cursor, until that is "".
"""

from __future__ import annotations

from typing import Final, cast

from glidemq_async.functions.calling import Calls, text, texts

STEP: Final = 500
"""Maximum number of jobs in one step. The server ends a step earlier when it takes long."""


class CleaningCalls(Calls):
    """Calls of the functions in `cleaning.lua`."""

    __slots__ = ()

    async def drain(self, cursor: str, *, delayed: bool) -> tuple[str, int]:
        """Remove waiting jobs. Return the next cursor and the number of removed jobs."""
        reply = cast("list[object]", await self._caller.once("drainJobs", [cursor, int(delayed), STEP]))
        return text(reply[0]), cast("int", reply[1])

    async def clean_ended(self, cursor: str, state: str, grace_ms: int, limit: int) -> tuple[str, list[str]]:
        """Remove jobs that ended in the state at least grace_ms ago, the oldest first. Return cursor and ids."""
        reply = cast("list[object]", await self._caller.once("cleanJobs", [cursor, state, grace_ms, limit, STEP]))
        return text(reply[0]), texts(reply[1])

    async def clean_unstarted(self, cursor: str, state: str, grace_ms: int, limit: int) -> tuple[str, list[str]]:
        """Remove waiting jobs that were added at least grace_ms ago. Return the next cursor and their ids."""
        reply = cast("list[object]", await self._caller.once("cleanUnstarted", [cursor, state, grace_ms, limit, STEP]))
        return text(reply[0]), texts(reply[1])

    async def promote(self, cursor: str, limit: int | None) -> tuple[str, int]:
        """Promote delayed jobs, the next due ones first. Return the next cursor and the number of promoted jobs."""
        most = -1 if limit is None else limit
        reply = cast("list[object]", await self._caller.once("promoteJobs", [cursor, most, STEP]))
        return text(reply[0]), cast("int", reply[1])

    async def retry(self, cursor: str, state: str, limit: int | None) -> tuple[str, int]:
        """Start ended jobs again, the newest first. Return the next cursor and the number of started jobs."""
        most = -1 if limit is None else limit
        reply = cast("list[object]", await self._caller.once("retryJobs", [cursor, state, most, STEP]))
        return text(reply[0]), cast("int", reply[1])
