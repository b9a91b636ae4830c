"""Typed calls of the functions for flows: `flows.lua`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from glidemq_async.functions.calling import Arg, Calls, Wait, text

FlowStatus: TypeAlias = Literal["added", "duplicate", "completed", "taken", "forgotten"]
_BYTES_OF_A_CALL: Final = 524_288


class FlowReply(NamedTuple):
    """Reply of `addFlow`: the server's time (ms), the id of the flow, and the outcome.

    For "taken", `id` is the id that another job has. `has_rest` is true if the outbox must be relayed.
    """

    now: int
    id: str
    status: FlowStatus
    has_rest: bool


class FlowCalls(Calls):
    """Calls of the functions in `flows.lua`."""

    __slots__ = ()

    async def add(
        self, root: str, stamp: str, total: int, ids: Sequence[str], pages: Sequence[bytes], wait: Wait
    ) -> FlowReply:
        """Store the plan of a flow. `ids` are the other ids that it gives in this queue.

        The pages of a large plan are staged by earlier calls, so that no call takes long.
        """
        while True:
            first = await self._stage(stamp, pages)
            reply = await self._add(root, stamp, total, len(pages) - len(first), ids, first, wait)
            if reply.status != "forgotten":
                return reply

    async def _stage(self, stamp: str, pages: Sequence[bytes]) -> Sequence[bytes]:
        """Send all pages but the first ones, which fit into the call that adds the flow. Return those."""
        parts = list(_parts(pages))
        number = 1 + len(parts[0])
        for part in parts[1:]:
            # Without a request number: a repeated call writes the same pages.
            await self._caller.call("stageFlow", [stamp, number, *part])
            number += len(part)
        return parts[0]

    async def _add(
        self, root: str, stamp: str, total: int, staged: int, ids: Sequence[str], pages: Sequence[bytes], wait: Wait
    ) -> FlowReply:
        args: list[Arg] = [self._caller.incarnation, root, stamp, total, staged, len(ids), *ids, *pages]
        reply = cast("list[object]", await self._caller.once("addFlow", args, wait=wait))
        status = cast("FlowStatus", text(reply[2]))
        return FlowReply(cast("int", reply[0]), text(reply[1]), status, len(reply) > 3 and reply[3] == 1)

    async def advance(self) -> bool:
        """Do a step of the work of flows. Return whether some is left."""
        # Without a number: the work is a list of the server, and each call does what is left of it.
        return await self._caller.call("advanceFlows") == 1


def _parts(pages: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Divide pages into parts for one call each. A part has at least one page."""
    part: list[bytes] = []
    size = 0
    for page in pages:
        if part and size + len(page) > _BYTES_OF_A_CALL:
            yield part
            part, size = [], 0
        part.append(page)
        size += len(page)
    yield part
