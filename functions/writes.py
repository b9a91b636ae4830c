"""Typed calls of the functions for bulk writes: `writes.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import msgpack

from glidemq_async.functions.calling import Arg, Calls, Record, record, text, texts

__all__ = ["MOST_JOBS", "Duplicates", "ProbeReply", "WriteCalls", "WriteReply"]

MOST_JOBS = 500
"""Maximum number of jobs in one call of a write."""

Duplicates: TypeAlias = Literal["remember", "report", "count"]
"""The handling of a row whose id another job has: count it, and also remember it or write an event."""

_QUIET: Final[dict[Duplicates, int]] = {"report": 0, "remember": 1, "count": 2}


class WriteReply(NamedTuple):
    """Reply of `addToWrite`: server time and wait before the next call (ms), number of waiting jobs, counts.

    `considered`: the number of jobs that the call has considered. The caller sends the others in its next call.
    """

    now: int
    depth: int
    wait: int
    inserted: int
    replayed: int
    duplicate: int
    first_duplicate: str
    considered: int


class ProbeReply(NamedTuple):
    """Reply of `probeWrite`: numbers of counted rows, and the positions of the rows that must be sent."""

    replayed: int
    duplicate: int
    missing: list[int]


# Each call of a task carries the write id and the token of its run, and the server checks both before anything else. A
# task cannot know that its run is over; see spark/write/commit_protocol.py for the cases.
class WriteCalls(Calls):
    """Calls of the functions in `writes.lua`."""

    __slots__ = ()

    async def open(
        self,
        write_id: str,
        token: str,
        ttl_ms: int,
        app: str = "",
        version: int = 0,
        label: str = "",
        order: int = 0,
    ) -> bool:
        """Begin or continue a write. Return False if it is committed already. Calls with other tokens are refused.

        `order` is the order of the run, from `plan`; 0 is the newest.
        """
        args: list[Arg] = [write_id, token, ttl_ms, app, version, label, order]
        return text(await self._caller.once("openWrite", args)) == "open"

    async def plan(self) -> int:
        """Return the order of a run that begins now, above all earlier ones."""
        return cast("int", await self._caller.once("planWrite", []))

    async def add(
        self,
        write_id: str,
        token: str,
        jobs: Sequence[Arg],
        *,
        rate: int = 0,
        duplicates: Duplicates = "remember",
        marks: Sequence[bytes] = (),
        may_end_early: bool = False,
    ) -> WriteReply:
        """Add jobs. `jobs` is flat: id, name, data, opts, extra of each. writes.lua explains the counts.

        `may_end_early`: the call adds only the first jobs if all of them would take the server too long.
        """
        packed = msgpack.packb(list(marks), use_bin_type=False) if marks else b""
        head: list[Arg] = [write_id, token, rate, _QUIET[duplicates], packed]
        args = [*head, len(jobs) // 5, *jobs, self._caller.incarnation]
        if may_end_early:
            args.append("1")
        reply = cast("list[object]", await self._caller.once("addToWrite", args))
        now, depth, wait, inserted, replayed, duplicate = cast("list[int]", reply[:6])
        return WriteReply(now, depth, wait, inserted, replayed, duplicate, text(reply[6]), cast("int", reply[7]))

    async def probe(
        self, write_id: str, token: str, ids: Sequence[str], *, duplicates: Duplicates = "remember"
    ) -> ProbeReply:
        """Count rows by their ids without sending their jobs. Return the counts and the rows that must be sent."""
        args: list[Arg] = [write_id, token, _QUIET[duplicates], len(ids), *ids, self._caller.incarnation]
        reply = cast("list[object]", await self._caller.once("probeWrite", args))
        replayed, duplicate = cast("list[int]", reply[:2])
        return ProbeReply(replayed, duplicate, [at for at, flag in enumerate(text(reply[2])) if flag == "1"])

    async def end(
        self, write_id: str, token: str, state: Literal["committed", "aborted"], partitions: int = 0
    ) -> tuple[str, str]:
        """Commit or abort an open write. Return the status and the state of the write."""
        status, found = texts(await self._caller.once("endWrite", [write_id, token, state, partitions]))
        return status, found

    async def get(self, ids: Sequence[str]) -> list[Record]:
        """Return the stored figures of each write, {} for an unknown id. At most 100 ids."""
        return [record(flat) for flat in cast("list[object]", await self._caller.read("getWrites", list(ids)))]

    async def list_ids(self, cursor: str, count: int) -> tuple[str, list[str]]:
        """Return a step of the ids of writes, the newest first, and the cursor of the next step ("" after the last)."""
        cursor_bytes, ids = cast("list[object]", await self._caller.read("listWrites", [cursor, count]))
        return text(cursor_bytes), texts(ids)

    async def get_transaction(self, app: str) -> tuple[int, str] | None:
        """Return the last version that an application committed and the id of that write, None if there is none."""
        version, write_id = texts(await self._caller.read("getTransaction", [app]))
        return (int(version), write_id) if version else None

    async def get_depth(self) -> int:
        """Return the number of jobs that wait for a worker, without delayed ones."""
        return cast("int", await self._caller.read("getDepth"))
