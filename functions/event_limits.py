"""Typed call of the function for the number of events that a queue keeps: `event_limits.lua`."""

from __future__ import annotations

from glidemq_async.functions.calling import Calls
from glidemq_async.functions.settings import Author, packed_author


class EventLimitCalls(Calls):
    """Calls of the function in `event_limits.lua`."""

    __slots__ = ()

    async def set(self, by: Author, count: int | None) -> None:
        """Hold the number of events that the queue keeps; None releases the hold."""
        await self._caller.once("setMaxEvents", ["" if count is None else count, packed_author(by)])
