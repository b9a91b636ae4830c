"""Typed call of the function that converts a queue of an older layout: `migration.lua`."""

from __future__ import annotations

from typing import NamedTuple, cast

from glidemq_async.functions.calling import Calls, text, texts


class MigrationStep(NamedTuple):
    """Reply of `migrateQueue`."""

    is_done: bool
    workers: tuple[str, ...] = ()
    """Workers of an older version that are still alive. Nothing was changed if there are some."""
    seen_ms_ago: int = 0
    """The time since the last sign of life of one of these workers."""


class MigrationCalls(Calls):
    """Calls of the functions in `migration.lua`."""

    __slots__ = ()

    async def step(self) -> MigrationStep:
        """Convert a part of a queue of an older layout."""
        # Without a number: the position is stored with the work, so a repeated call makes the next step.
        status, *details = cast("list[object]", await self._caller.call("migrateQueue"))
        if text(status) != "workers":
            return MigrationStep(text(status) == "done")
        ago, *workers = details
        return MigrationStep(False, tuple(texts(workers)), cast("int", ago))
