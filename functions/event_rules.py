"""Typed call of the function for the rules of events: `event_rules.lua`."""

from __future__ import annotations

from collections.abc import Mapping

from glidemq_async.functions.calling import Arg, Calls
from glidemq_async.functions.settings import Author, packed_author


class EventRuleCalls(Calls):
    """Calls of the function in `event_rules.lua`."""

    __slots__ = ()

    async def set(self, by: Author | None, rules: Mapping[str, str]) -> None:
        """Set rules of events in stored form, by name; "" removes a rule or releases its hold."""
        flat: list[Arg] = [part for pair in rules.items() for part in pair]
        await self._caller.once("setEvents", [*flat, "by", packed_author(by)])
