"""Typed calls of the functions that add jobs in groups of equal jobs: `grouped_adds.lua`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, cast

from glidemq_async.functions.calling import Arg, Caller, Calls, Wait, text, texts

PUSHED: Final = b""
"""Replaces the empty list of ids in the reply to a call whose only job was pushed to an idle worker."""


class AddReply(NamedTuple):
    """Reply of an add: the server's time (ms), an id for each job, and the outcomes of `add.lua` by position.

    For a job that was not added, `ids` has the id of the existing job that blocked it. There are fewer ids than jobs if
    the call has ended early. The other jobs belong to the next call.
    """

    now: int
    ids: list[str]
    outcomes: dict[int, str]


class GroupedAddCalls(Calls):
    """Calls of the functions in `grouped_adds.lua`. A call may add only the first jobs of its groups."""

    __slots__ = ("has_pushed",)

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller)
        self.has_pushed = False
        """True if the last add of a single job pushed it to an idle worker, so the next one may do the same."""

    async def one(self, name: str, opts: bytes, data: bytes, wait: Wait) -> AddReply:
        """Add one plain job."""
        args = (self._caller.incarnation, name, opts, 1, data)
        reply = await self._caller.once("addPlain", args, wait=wait, messages_first=self.has_pushed)
        now, first, listed, _ = cast("list[object]", reply)
        self.has_pushed = listed == PUSHED
        return AddReply(cast("int", now), [text(first)], {})

    async def plain(self, groups: Iterable[Arg], wait: Wait) -> AddReply:
        """Add groups of plain jobs."""
        return _added(await self._caller.once("addPlain", (self._caller.incarnation, *groups), wait=wait))

    async def of_kinds(self, groups: Iterable[Arg], wait: Wait) -> AddReply:
        """Add groups of plain, LIFO, prioritized and keyed jobs."""
        return _added(await self._caller.once("addGroups", (self._caller.incarnation, *groups), wait=wait))


def _added(reply: object) -> AddReply:
    now, first, listed, added = cast("tuple[int, object, object, int]", reply)
    if listed:
        return AddReply(now, texts(listed), {})
    start = int(text(first))
    return AddReply(now, [str(number) for number in range(start, start + added)], {})
