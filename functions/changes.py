"""Typed calls of the functions that change a job before it starts: `changes.lua`."""

from __future__ import annotations

from glidemq_async.functions.calling import Calls, text


class ChangeCalls(Calls):
    """Calls of the functions in `changes.lua`."""

    __slots__ = ()

    async def set_priority(self, job_id: str, priority: int) -> str:
        """Change the priority of a job that has not started. Return the status."""
        return text(await self._caller.once("changePriority", [job_id, priority]))

    async def set_delay(self, job_id: str, delay_ms: int) -> str:
        """Delay a job that has not started by `delay_ms` from now on. Return the status."""
        # The delay counts from the first execution of the call. A repeated call gets the stored reply and does not
        # delay the job again.
        return text(await self._caller.once("changeDelay", [job_id, delay_ms]))
