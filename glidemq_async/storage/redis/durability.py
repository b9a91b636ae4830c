"""Calls that return only after a replica or the disk has confirmed the change.

WAIT and WAITAOF wait for the last write of the same connection. So the call, a small write and the wait are sent
together over a borrowed connection. A repeated call writes nothing itself and therefore needs the small write.
"""

from __future__ import annotations

import asyncio
from typing import Final

from glidemq_async.errors import StorageUnavailable, UnsupportedDurability
from glidemq_async.storage.protocol import Wait
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.node import Node
from glidemq_async.storage.redis.retry import TRY_SECONDS
from glidemq_async.storage.redis.wire import Reply, ReplyError, Wire, as_list

WAIT_SECONDS: Final = 5.0
"""Seconds that a replica or the disk may take to confirm a call."""


async def call_confirmed(node: Node, packed: bytes, key: str, wait: Wait, deadline: float) -> Reply:
    """Send a packed call and wait for its confirmation. Return the reply of the call.

    Raises `StorageUnavailable` when it is stored but not confirmed within five seconds, and
    `UnsupportedDurability` before anything is sent when the server cannot confirm.
    """
    loop = asyncio.get_running_loop()
    async with node.borrow(deadline) as wire:
        if wait == "fsync":
            await _require_aof(wire, loop.time() + TRY_SECONDS)
        limit = min(WAIT_SECONDS, max(0.001, deadline - loop.time()))
        ms = max(1, round(limit * 1000))
        until = loop.time() + limit + TRY_SECONDS
        # The three requests leave in one turn of the event loop and over a connection that no other call uses. No write
        # of another call can then come between the call and the WAIT that speaks for it.
        called = wire.send(packed, until)
        marked = wire.send(pack("SET", f"{key}:confirm", 1, "PX", 1000), until)
        waited = wire.send(pack("WAIT", 1, ms) if wait == "replicated" else pack("WAITAOF", 1, 0, ms), until)
        reply = await called
        # A call that was refused has written nothing. Its WAIT may still block on the server, so `borrow` drops the
        # connection.
        if isinstance(reply, Exception):
            return reply
        mark, acks = await marked, await waited
        # The connection was lost after the call. Returned as the outcome, this makes the storage send the call again
        # with its number. The server then repeats the stored reply, and the small write gives the new WAIT something to
        # wait for.
        if isinstance(acks, OSError):
            return acks
        _check(mark, acks, wire, wait, limit)
        return reply


async def _require_aof(wire: Wire, deadline: float) -> None:
    reply = await wire.send(pack("WAITAOF", 1, 0, 1), deadline)
    if isinstance(reply, ReplyError):
        raise UnsupportedDurability(
            f"durability='fsync' was requested, but {wire.where} cannot confirm it: {reply}. "
            "It needs Redis or Valkey >= 7.2 with appendonly yes. Nothing was stored."
        )
    if isinstance(reply, OSError):
        raise reply


def _check(mark: Reply, acks: Reply, wire: Wire, wait: Wait, limit: float) -> None:
    listed = as_list(acks)
    count = listed[0] if listed else acks
    if isinstance(count, int) and count >= 1 and not isinstance(mark, Exception):
        return
    confirmer = "any replica" if wait == "replicated" else "its append-only file"
    detail = f" ({acks})" if isinstance(acks, ReplyError) else ""
    raise StorageUnavailable(
        f"durability={wait!r} was requested: the change is stored on {wire.where}, but {confirmer} did not "
        f"confirm it within {limit:.1f} s{detail}. It may be lost if that server fails now. Check the "
        "replicas and the disk. An added job may be stored already: add it again only with the same job_id, because "
        "without one it would be a second job."
    )
