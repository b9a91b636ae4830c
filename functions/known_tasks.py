"""Typed calls of the functions for the tasks of a queue: `known_tasks.lua`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgpack

from glidemq_async.functions.calling import Arg, Calls, text


class KnownTaskCalls(Calls):
    """Calls of the functions in `known_tasks.lua`."""

    __slots__ = ()

    async def describe(self, tasks: Mapping[str, Sequence[str]]) -> int:
        """Store the names of the positional parameters of tasks. Return how many tasks fitted."""
        args: list[Arg] = [arg for name, names in tasks.items() for arg in (name, msgpack.packb(list(names)))]
        return cast("int", await self._caller.call("describeTasks", args))

    async def list(self) -> dict[str, Sequence[str]]:
        """Return the names of the positional parameters of each task."""
        rows = cast("list[list[object]]", await self._caller.read("listTasks"))
        return {text(name): cast("list[str]", msgpack.unpackb(cast("bytes", packed))) for name, packed in rows}
