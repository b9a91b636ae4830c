"""Typed calls of the functions that read whole flows: `graphs.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import msgpack

from glidemq_async.functions.calling import Calls, text

_GONE: Final = "gone"
_FIRST: Final = "0 1"
_MOST_IDS: Final = 500


class FlowNodeRow(NamedTuple):
    """A node of a plan. `ending` is "" while it has not ended, "c" with a result, or "f" with the `reason`."""

    number: int
    base: str
    id: str
    name: str
    policy: str
    ending: str
    reason: str
    children: tuple[int, ...]


class FlowJobRow(NamedTuple):
    """The state of a job, "" without one, and the plan of its added children as (stamp, flow)."""

    state: str
    added: tuple[str, str] | None


class GraphCalls(Calls):
    """Calls of the functions in `graphs.lua`."""

    __slots__ = ()

    async def read_flow(self, flow: str, stamp: str, most: int) -> list[FlowNodeRow] | None:
        """Return the nodes of a plan by their numbers, at most about `most`. None if the plan is gone.

        With an empty `stamp`, the plan is known by its id alone.
        """
        rows: list[FlowNodeRow] = []
        cursor = _FIRST
        while cursor and len(rows) < most:
            following, found, part = cast(
                "tuple[bytes, bytes, list[list[object]]]",
                tuple(cast("list[object]", await self._caller.read("readFlow", [flow, stamp, cursor]))),
            )
            cursor, stamp = text(following), text(found)
            if cursor == _GONE:
                return None
            rows += [_node(row) for row in part]
        return rows

    async def read_jobs(self, ids: Sequence[str]) -> list[FlowJobRow]:
        """Return the state and the added children of each of these jobs."""
        rows: list[FlowJobRow] = []
        for first in range(0, len(ids), _MOST_IDS):
            flat = cast("list[bytes]", await self._caller.read("readFlowJobs", ids[first : first + _MOST_IDS]))
            rows += [_job(flat[at], flat[at + 1]) for at in range(0, len(flat), 2)]
        return rows


def _node(row: list[object]) -> FlowNodeRow:
    number, *texts, packed = row
    base, job_id, name, policy, ending, reason = map(text, texts)
    children = cast("list[int]", msgpack.unpackb(cast("bytes", packed))) if packed else []
    return FlowNodeRow(cast("int", number), base, job_id, name, policy, ending, reason, tuple(children))


def _job(state: bytes, added: bytes) -> FlowJobRow:
    stamp, _, flow = text(added).partition(" ")
    return FlowJobRow(text(state), (stamp, flow) if flow else None)
