"""Typed call of the function that searches jobs: `searching.lua`."""

from __future__ import annotations

from typing import cast

from glidemq_async.functions.calling import Arg, Calls, text, texts


class SearchingCalls(Calls):
    """Calls of the functions in `searching.lua`."""

    __slots__ = ()

    async def find(
        self, state: str, cursor: str, count: int, name: str, *, backwards: bool = False
    ) -> tuple[str, list[str], int]:
        """Look at up to `count` jobs of a state.

        Return the next cursor, the ids of the jobs with that name, and the number of jobs that were looked at.
        """
        # `count` limits the jobs that the server looks at, so that a call stays short whatever the name is. A step may
        # therefore return no id although the cursor continues.
        args: list[Arg] = [state, cursor, count, name, int(backwards)]
        cursor_bytes, ids, looked = cast("list[object]", await self._caller.read("searchJobs", args))
        return text(cursor_bytes), texts(ids), cast("int", looked)
