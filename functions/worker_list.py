"""Typed call of the function that lists workers: `worker_list.lua`."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, cast

from glidemq_async.functions.calling import Calls, text

_Reply: TypeAlias = tuple[bytes, list[tuple[bytes, int, bytes, int]]]


class WorkerRow(NamedTuple):
    """One worker of `listWorkers`. `info` is the description that the worker wrote."""

    name: str
    last_seen: int
    info: bytes
    running: int


class WorkerListCalls(Calls):
    """Calls of the functions in `worker_list.lua`."""

    __slots__ = ()

    async def list(self, silent_ms: int) -> list[WorkerRow]:
        """Return the workers that gave a sign of life within `silent_ms`, each once."""
        found: dict[str, WorkerRow] = {}
        cursor = ""
        while True:
            position, rows = cast("_Reply", await self._caller.read("listWorkers", [silent_ms, cursor]))
            # A worker that renewed between two steps comes again, and its later row counts.
            found |= {text(name): WorkerRow(text(name), seen, info, running) for name, seen, info, running in rows}
            cursor = text(position)
            if not cursor:
                return [*found.values()]
