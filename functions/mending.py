"""Typed calls of the functions that let a run of a workflow start again: `mending.lua`."""

from __future__ import annotations

from collections.abc import Sequence

from glidemq_async.functions.calling import Arg, Calls, text

MAX_STEPS = 250
"""Maximum number of steps in one call of `restore`."""


class MendingCalls(Calls):
    """Calls of the functions in `mending.lua`."""

    __slots__ = ()

    async def restart(self, job_id: str) -> str:
        """Start an ended job again without its journal. Return the status."""
        return text(await self._caller.once("restartRun", [job_id]))

    async def accept(self, job_id: str, identity: str, packed: bytes) -> str:
        """Record a step, and start a failed job again. Return the status."""
        return text(await self._caller.once("acceptRun", [job_id, identity, packed]))

    async def restore(self, job_id: str, steps: Sequence[tuple[str, bytes]]) -> str:
        """Add at most 250 steps to the journal of a delayed job. Return the status."""
        args: list[Arg] = [job_id, len(steps)]
        for identity, packed in steps:
            args += [identity, packed]
        return text(await self._caller.call("restoreSteps", args))
