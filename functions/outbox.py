"""Typed call of the function that relays an outbox: `outbox.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from glidemq_async.functions.calling import Calls


class Posted(NamedTuple):
    """One entry of an outbox: the target's base key and a job for it."""

    entry: str
    to: str
    id: bytes
    name: bytes
    data: bytes
    opts: bytes
    extra: bytes
    origin: bytes


class Outgoing(NamedTuple):
    """Entries of an outbox, up to `last`.

    `has_work` is true while the queue has work of flows, see `FlowCalls.advance`. `newest` is the newest entry of the
    outbox if the call had no holder, otherwise "".
    """

    last: str
    posted: list[Posted]
    has_work: bool
    newest: str


class OutboxCalls(Calls):
    """Calls of the functions in `outbox.lua`."""

    __slots__ = ()

    async def relay(self, holder: str, after: str, done: Sequence[str]) -> Outgoing:
        """Remove delivered entries from the outbox, and read entries after `after`.

        There are none at the end of the outbox, and while another worker relays. With the holder "", the call reads
        entries even while a worker relays.
        """
        # Without a number: the entries in `done` are named, so deleting them twice has no effect.
        reply = await self._caller.call("relayOutbox", [holder, after, len(done), *done])
        last, flat, has_work, newest = cast("tuple[bytes, list[bytes], int, bytes]", reply)
        rows = [flat[at : at + 8] for at in range(0, len(flat), 8)]
        posted = [Posted(row[0].decode(), row[1].decode(), *row[2:]) for row in rows]
        return Outgoing(last.decode(), posted, has_work == 1, newest.decode())
