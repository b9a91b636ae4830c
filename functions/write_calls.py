"""Typed callers of the functions of writes: writes.lua."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import msgpack

from glidemq_async.functions.calling import Arg, Caller, Record, record, text, texts

__all__ = ["MOST_JOBS", "Duplicates", "ProbeReply", "WriteCalls", "WriteReply"]

MOST_JOBS = 500
"""How many jobs one call of a write holds at most."""

Duplicates: TypeAlias = Literal["remember", "tell", "count"]
"""What becomes of a row whose id another job has: it counts, and is remembered by the write or told by an event."""

_QUIET: Final[dict[Duplicates, int]] = {"tell": 0, "remember": 1, "count": 2}


class WriteReply(NamedTuple):
    """What `addToWrite` answered: the server's time and the wait before the next call in ms, jobs that wait, counts."""

    now: int
    depth: int
    wait: int
    inserted: int
    replayed: int
    duplicate: int
    first_duplicate: str


class ProbeReply(NamedTuple):
    """What `probeWrite` answered: rows that were counted, and the positions of those that have to be sent."""

    replayed: int
    duplicate: int
    missing: list[int]


class WriteCalls(Caller):
    """The part of `Functions` that these functions make up."""

    incarnation = ""
    """Of the queue that was opened; "" until then, and adds and claims are not bound to one."""

    async def open_write(
        self,
        write_id: str,
        token: str,
        ttl_ms: int,
        app: str = "",
        version: int = 0,
        label: str = "",
        order: int = 0,
    ) -> bool:
        """Begin or go on with a write; returns False when it is committed already. Fences off other tokens.

        `order` is that of the run, from `plan_write`; without one it is the newest.
        """
        return text(await self.once("openWrite", [write_id, token, ttl_ms, app, version, label, order])) == "open"

    async def plan_write(self) -> int:
        """Return the order of a run that begins now, above that of all before it."""
        return cast("int", await self.once("planWrite", []))

    async def add_to_write(
        self,
        write_id: str,
        token: str,
        jobs: Sequence[Arg],
        *,
        rate: int = 0,
        duplicates: Duplicates = "remember",
        marks: Sequence[bytes] = (),
    ) -> WriteReply:
        """Add jobs, given flat as id, name, data, opts, extra each; see writes.lua for what is counted how."""
        packed = msgpack.packb(list(marks), use_bin_type=False) if marks else b""
        head: list[Arg] = [write_id, token, rate, _QUIET[duplicates], packed]
        args = [*head, len(jobs) // 5, *jobs, self.incarnation]
        reply = cast("list[object]", await self.once("addToWrite", args))
        now, depth, wait, inserted, replayed, duplicate = cast("list[int]", reply[:6])
        return WriteReply(now, depth, wait, inserted, replayed, duplicate, text(reply[6]))

    async def probe_write(
        self, write_id: str, token: str, ids: Sequence[str], *, duplicates: Duplicates = "remember"
    ) -> ProbeReply:
        """Count rows of which the write or the queue knows the ids, without their jobs; tells which must be added."""
        args: list[Arg] = [write_id, token, _QUIET[duplicates], len(ids), *ids, self.incarnation]
        reply = cast("list[object]", await self.once("probeWrite", args))
        replayed, duplicate = cast("list[int]", reply[:2])
        return ProbeReply(replayed, duplicate, [at for at, letter in enumerate(text(reply[2])) if letter == "1"])

    async def end_write(
        self, write_id: str, token: str, state: Literal["committed", "aborted"], partitions: int = 0
    ) -> tuple[str, str]:
        """Commit or abort an open write; returns the function's word and the state that the write is in."""
        word, found = texts(await self.once("endWrite", [write_id, token, state, partitions]))
        return word, found

    async def get_writes(self, ids: Sequence[str]) -> list[Record]:
        """Return what is kept of each write, {} where there is nothing. At most 100 ids."""
        return [record(flat) for flat in cast("list[object]", await self.read("getWrites", list(ids)))]

    async def list_writes(self, cursor: str, count: int) -> tuple[str, list[str]]:
        """Return a step of the ids of writes, the newest first, and the cursor of the next step ("" after the last)."""
        cursor_bytes, ids = cast("list[object]", await self.read("listWrites", [cursor, count]))
        return text(cursor_bytes), texts(ids)

    async def get_transaction(self, app: str) -> tuple[int, str] | None:
        """Return the version an application committed last and the id of that write, None if there is none."""
        version, write_id = texts(await self.read("getTransaction", [app]))
        return (int(version), write_id) if version else None

    async def get_depth(self) -> int:
        """Return how many jobs wait for a worker, delayed ones not counted."""
        return cast("int", await self.read("getDepth"))
