"""Typed call of the function for the retention that an operator holds: `retention.lua`."""

from __future__ import annotations

from collections.abc import Mapping

from glidemq_async.functions.calling import Arg, Calls
from glidemq_async.functions.settings import Author, packed_author


class RetentionCalls(Calls):
    """Calls of the function in `retention.lua`."""

    __slots__ = ()

    async def set(self, by: Author, policies: Mapping[str, str]) -> None:
        """Hold retention policies "<count> <age ms>" by setting, -1 for no bound; "" releases a hold."""
        flat: list[Arg] = [part for pair in policies.items() for part in pair]
        await self._caller.once("setRetention", [*flat, "by", packed_author(by)])
