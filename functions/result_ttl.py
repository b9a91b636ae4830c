"""Typed call of the function that sets how long a result is kept: `result_ttl.lua`."""

from __future__ import annotations

from glidemq_async.functions.calling import Calls, text


class ResultTtlCalls(Calls):
    """Calls of the functions in `result_ttl.lua`."""

    __slots__ = ()

    async def set(self, job_id: str, ttl_ms: int | None) -> str:
        """Keep an ended job's record for `ttl_ms` from now on; None: the retention applies again. Return the status."""
        return text(await self._caller.once("setResultTtl", [job_id, "" if ttl_ms is None else ttl_ms]))
