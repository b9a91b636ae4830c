"""Figures of the servers of a store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from glidemq_async.ops.connections import Connections
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.server import ServerStorage, servers_of
from glidemq_async.storage.redis.wire import as_text

ASK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ServerNode:
    """A primary of the store. Sizes are in bytes. `memory_limit_bytes` is None without a limit."""

    address: str
    product: str
    version: str
    role: str
    replicas: int
    uptime_seconds: float
    clients: int
    memory_bytes: int
    memory_limit_bytes: int | None
    eviction: str
    is_persistent: bool
    last_save_failed: bool
    commands_per_second: int


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The servers of a store."""

    url: str
    prefix: str
    nodes: tuple[ServerNode, ...]


async def read_server(connections: Connections) -> ServerInfo:
    """Return the figures of all primaries. A storage that is no server has none."""
    storage, nodes = connections.storage, list[ServerNode]()
    if isinstance(storage, ServerStorage):
        for node in await servers_of(storage).primaries():
            deadline = asyncio.get_running_loop().time() + ASK_SECONDS
            async with node.borrow(deadline) as wire:
                reply = await wire.send(pack("INFO"), deadline)
                if not isinstance(reply, Exception):
                    nodes.append(_node(wire.where, as_text(reply)))
    return ServerInfo(str(storage.url), connections.prefix, tuple(nodes))


def _node(address: str, text: str) -> ServerNode:
    pairs = (line.partition(":") for line in text.splitlines())
    info = {name: value for name, colon, value in pairs if colon}
    is_valkey = "valkey_version" in info
    limit = int(info.get("maxmemory", "0"))
    return ServerNode(
        address=address,
        product="Valkey" if is_valkey else "Redis",
        version=info.get("valkey_version" if is_valkey else "redis_version", ""),
        role=info.get("role", ""),
        replicas=int(info.get("connected_slaves", "0")),
        uptime_seconds=float(info.get("uptime_in_seconds", "0")),
        clients=int(info.get("connected_clients", "0")),
        memory_bytes=int(info.get("used_memory", "0")),
        memory_limit_bytes=limit or None,
        eviction=info.get("maxmemory_policy", ""),
        is_persistent=info.get("aof_enabled") == "1",
        last_save_failed=info.get("aof_last_write_status", "ok") != "ok"
        or info.get("rdb_last_bgsave_status", "ok") != "ok",
        commands_per_second=int(info.get("instantaneous_ops_per_sec", "0")),
    )
