"""Typed calls of the functions that remove a queue: `obliterate.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from glidemq_async.functions.calling import Calls, text
from glidemq_async.functions.cleaning import STEP


class ObliterateStep(NamedTuple):
    """One step of `obliterateQueue`. If `refused` is not 0, that many jobs run and the step changed nothing."""

    cursor: str
    removed: int
    refused: int

    @property
    def is_empty(self) -> bool:
        """True if no job is left, and only the store keys remain to be removed."""
        return self.cursor.startswith(("reported ", "again "))


class ObliterateCalls(Calls):
    """Calls of the functions in `obliterate.lua`."""

    __slots__ = ()

    async def step(self, cursor: str, names: Sequence[str], *, force: bool) -> ObliterateStep:
        """Remove jobs in any state. The last step also removes the queue's store keys with these names."""
        reply = cast("list[object]", await self._caller.once("obliterateQueue", [cursor, int(force), STEP, *names]))
        return ObliterateStep(text(reply[0]), cast("int", reply[1]), cast("int", reply[2]))

    async def sweep_remains(self, names: Sequence[str]) -> None:
        """Remove store keys (named without the base) of an obliterated queue, unless a new queue uses them."""
        await self._caller.call("sweepRemains", list(names))
