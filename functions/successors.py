"""Typed calls of the functions for deduplication ids: `successors.lua`."""

from __future__ import annotations

from glidemq_async.functions.calling import Calls, text


class DeduplicationCalls(Calls):
    """Calls of the functions in `successors.lua`."""

    __slots__ = ()

    async def get_owner(self, dedup_id: str) -> str:
        """Return the id of the job that owns a deduplication id, "" if it has no owner."""
        return text(await self._caller.read("getDeduplication", [dedup_id]))

    async def release(self, dedup_id: str) -> bool:
        """Free a deduplication id although its owner has not ended. Return True if it had an owner."""
        # With a number: a second execution could release the id from a job that has owned it since the first one.
        return await self._caller.once("releaseDeduplication", [dedup_id]) == 1
