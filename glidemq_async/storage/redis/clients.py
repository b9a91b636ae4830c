"""Storages for the redis-py clients that an application already has.

A storage takes over the client's addresses and options, and opens its own connections with them. It never uses or
closes a connection of the client: calls of a queue block some connections, and a retry by the client could execute a
write twice.
"""

# redis-py's own annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from glidemq_async.storage.redis.connections import Endpoint
from glidemq_async.storage.redis.server import ServerStorage
from glidemq_async.storage.redis.standalone import RedisStorage

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster
    from redis.asyncio.connection import AbstractConnection
    from redis.asyncio.sentinel import SentinelConnectionPool


def client_storage(client: object, timeout: float | None) -> ServerStorage | None:
    """Return a storage for the servers of a redis-py client, or None if `client` is something else.

    Raises TypeError for a client without asyncio and for a client of replicas.
    """
    # A client can only exist if its module has been imported, and importing all of redis-py takes long. Every client
    # imports this module, and a connection of this package does not.
    if "redis.client" not in sys.modules:
        return None
    import redis
    from redis.asyncio import Redis, RedisCluster, Sentinel
    from redis.asyncio.sentinel import SentinelConnectionPool

    if isinstance(client, RedisCluster):
        return _of_cluster(client, timeout)
    if isinstance(client, Redis):
        if isinstance(client.connection_pool, SentinelConnectionPool):
            return _of_sentinel(client.connection_pool, client.connection_pool.service_name, timeout)
        return _of_redis(client, timeout)
    if isinstance(client, Sentinel):
        # The pool only carries the options for the primary. It never connects, so it needs no name of a service.
        pool = SentinelConnectionPool("", client, **client.connection_kwargs)  # type: ignore[no-untyped-call]
        return _of_sentinel(pool, None, timeout)
    if isinstance(client, redis.Redis | redis.RedisCluster | redis.Sentinel):
        name = type(client).__name__
        raise TypeError(f"a redis.{name} works without asyncio; pass a redis.asyncio.{name} instead")
    return None


def _of_redis(client: Redis, timeout: float | None) -> RedisStorage:
    pool = client.connection_pool
    endpoint = _endpoint(pool.connection_class, pool.connection_kwargs)
    return RedisStorage(endpoint, _scheme(endpoint) + endpoint.where, timeout=timeout)


def _of_cluster(client: RedisCluster, timeout: float | None) -> ServerStorage:
    # The start-up nodes and not the map of the client: it may be old, and a client that was never used has none. The
    # storage reads its own map with its first connection.
    from glidemq_async.storage.redis.cluster import ClusterStorage

    kwargs = dict(client.connection_kwargs)
    kind = kwargs.pop("connection_class")
    # The client sets this to read from replicas. Calls of queues need the primary.
    kwargs.pop("redis_connect_func", None)
    nodes = client.nodes_manager
    seeds = [(node.host, int(node.port)) for node in nodes.startup_nodes.values()]
    return ClusterStorage(seeds, _endpoint(kind, kwargs), timeout=timeout, remap=nodes.remap_host_port)


def _of_sentinel(pool: SentinelConnectionPool, service: str | None, timeout: float | None) -> ServerStorage:
    from redis.asyncio.connection import Connection, SSLConnection

    from glidemq_async.storage.redis.sentinel import SentinelStorage

    if not pool.is_master:
        raise TypeError(f"the client leads to replicas; pass sentinel.master_for({pool.service_name!r}) instead")
    # The connection class of the pool asks the sentinels itself. The storage does that, with a watch for failovers.
    kind = SSLConnection if issubclass(pool.connection_class, SSLConnection) else Connection
    manager = pool.sentinel_manager
    sentinels = [
        _endpoint(one.connection_pool.connection_class, one.connection_pool.connection_kwargs)
        for one in manager.sentinels
    ]
    discovery = {
        "min_other_sentinels": manager.min_other_sentinels,
        "force_master_ip": getattr(manager, "_force_master_ip", None),
    }
    primary = _endpoint(kind, pool.connection_kwargs)
    return SentinelStorage(sentinels, service, primary, timeout=timeout, discovery=discovery)


def _endpoint(kind: type[AbstractConnection], kwargs: Mapping[str, Any]) -> Endpoint:
    from redis.asyncio.connection import SSLConnection

    options = dict(kwargs)
    return Endpoint(
        host=options.pop("host", None) or "localhost",
        port=int(options.pop("port", None) or 6379),
        path=options.pop("path", None),
        tls=issubclass(kind, SSLConnection),
        username=options.pop("username", None),
        password=options.pop("password", None),
        db=int(options.pop("db", None) or 0),
        options=options,
        connection_class=kind,
    )


def _scheme(endpoint: Endpoint) -> str:
    if endpoint.path is not None:
        return "unix://"
    return "rediss://" if endpoint.tls else "redis://"
