"""Typed call of the function that writes progress, data and log lines: `updates.lua`."""

from __future__ import annotations

from typing import Literal

from glidemq_async.functions.calling import Arg, Calls, text


class UpdateCalls(Calls):
    """Calls of the functions in `updates.lua`."""

    __slots__ = ()

    async def write(self, job_id: str, entry: str, kind: Literal["progress", "data", "log"], value: bytes | str) -> str:
        """Write progress, data or a log line. Return the status. entry "": a user outside of a run."""
        args: list[Arg] = [job_id, entry, kind, value]
        # The consumer distinguishes two runs with the same fencing token, which exist after a failover that lost a
        # claim (docs/internals/worker.md, "Lost claims").
        if entry and self._caller.consumer:
            args.append(self._caller.consumer)
        return text(await self._caller.once("updateJob", args))
