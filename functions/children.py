"""Typed calls of the functions for the children of jobs: `children.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, cast

import msgpack

from glidemq_async.functions.calling import Arg, Calls, text

GONE: Final = "gone"


class ChildRow(NamedTuple):
    """A child of a node. `ending` is "" while it has not ended, "c" with its result, or "f" with the reason."""

    base: str
    id: str
    name: str
    policy: str
    ending: str
    value: bytes


class PresentChildren(NamedTuple):
    """The children of a job, and how many of them have ended as the server counts them."""

    rows: list[ChildRow]
    ends: int


class Pages(NamedTuple):
    """The pages of some nodes, and the number of these nodes."""

    packed: Sequence[bytes]
    total: int


class AddedChildren(NamedTuple):
    """Children that a call has added: the server's time (ms), the id of their plan, and the number of its first node.

    `has_rest` is true if the outbox must be relayed.
    """

    now: int
    flow: str
    first: int
    has_rest: bool


class RefusedChildren(NamedTuple):
    """The reason why children were not added. `numbers` are the positions for "known", and one number for "next"."""

    status: Literal["known", "next", "full", "missing", "stale"]
    numbers: tuple[int, ...]


class ChildCalls(Calls):
    """Calls of the functions in `children.lua`."""

    __slots__ = ()

    async def add(
        self, job_id: str, entry: str, stamp: str, first: int, children: Sequence[tuple[int, str]], pages: Pages
    ) -> AddedChildren | RefusedChildren:
        """Add children to a running job. `entry` is the fencing token of the run.

        `first` is the number of the first new node. `children` has the number of each child and, if the child has a
        `job_id`, its base key and id. `stamp` is a unique text for the plan, if the job has none yet.
        """
        consumer = self._caller.consumer or ""
        packed = msgpack.packb(children, use_bin_type=False)
        args: list[Arg] = [job_id, entry, consumer, stamp, first, pages.total, packed, *pages.packed]
        reply = cast("list[object]", await self._caller.once("addChildren", args))
        status = text(reply[0])
        if status == "added":
            _, now, flow, number, rest = cast("tuple[bytes, int, bytes, int, int]", tuple(reply))
            return AddedChildren(now, text(flow), number, rest == 1)
        numbers: list[int] = []
        if len(reply) > 1:
            numbers = cast("list[int]", reply[1] if isinstance(reply[1], list) else reply[1:])
        return RefusedChildren(cast("Any", status), tuple(numbers))

    async def read(self, flow: str, stamp: str, node: int) -> list[ChildRow] | None:
        """Return the children of a node in their order, None if the plan has expired.

        With an empty `stamp`, return the children that runs of the job with the id `flow` have added.
        """
        found = await self._read(flow, stamp, node)
        return None if found is None else found.rows

    async def read_present(self, job_id: str) -> PresentChildren:
        """Return the children that runs of a job have added since it was last started by hand."""
        found = await self._read(job_id, "", 0)
        return found if found is not None and found.ends >= 0 else PresentChildren([], 0)

    async def _read(self, flow: str, stamp: str, node: int) -> PresentChildren | None:
        rows: list[ChildRow] = []
        cursor, first_ends = "0", None
        while cursor:
            reply = cast("list[object]", await self._caller.read("getChildren", [flow, stamp, node, cursor]))
            cursor = text(reply[0])
            if cursor == GONE:
                return None
            flat, ends = cast("tuple[list[bytes], int]", tuple(reply[1:]))
            # The count of the first page is kept. A child that ends before a later page is read is then counted as a
            # new end, which resumes the job once more.
            first_ends = ends if first_ends is None else first_ends
            rows += [_child(flat[at : at + 6]) for at in range(0, len(flat), 6)]
        return PresentChildren(rows, first_ends or 0)


def _child(row: list[bytes]) -> ChildRow:
    base, job_id, name, policy, ending, value = row
    return ChildRow(base.decode(), job_id.decode(), name.decode(), policy.decode(), ending.decode(), value)
