"""A cluster: routing, the library on every primary, failover and moving cluster slots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from glidemq_async.errors import StorageUnavailable
from glidemq_async.storage import ClusterStorage, Endpoint
from glidemq_async.storage.redis import server
from glidemq_async.storage.redis.cluster import slot_of
from glidemq_async.storage.redis.node import Node
from glidemq_async.storage.redis.server import find_keys
from tests.storage.listener import Listener
from tests.storage.small_library import LIBRARY
from tests.support.helpers import until
from tests.support.servers import Cluster, Server, cluster, eventually, node_id

pytestmark = pytest.mark.cluster

KEYS = [f"glide:{{queue-{number}}}" for number in range(12)]


@pytest.fixture
async def servers() -> AsyncIterator[Cluster]:
    async with cluster() as made:
        yield made


@pytest.fixture
async def storage(servers: Cluster) -> AsyncIterator[ClusterStorage]:
    # One seed node. The client discovers the others.
    seeds = [("127.0.0.1", servers.primaries[0].port)]
    async with ClusterStorage(seeds, Endpoint(), library=LIBRARY) as opened:
        yield opened


async def test_calls_channels_and_scans_reach_their_nodes(servers: Cluster, storage: ClusterStorage) -> None:
    for primary in servers.primaries:
        libraries = await primary.command("FUNCTION", "LIST")
        assert "glidemq_async_v2" in str(libraries)
    assert await asyncio.gather(*(storage.call("count", key, ["t"]) for key in KEYS)) == [b"1"] * len(KEYS)
    owners = [await servers.owner(key) for key in KEYS]
    assert len({owner.port for owner in owners}) == 3
    for key, owner in zip(KEYS, owners, strict=True):
        assert await owner.command("GET", f"{key}:count") == b"1"
        listener = await Listener().subscribe(storage, key, f"{key}:wake")
        assert await storage.call("publish", key, [f"{key}:wake", key]) == 1
        assert await listener.message() == key.encode()
        await listener.close()
        assert {found async for found in storage.scan(f"{key}:*")} == {
            f"{key}:{name}".encode() for name in ("count", "executions", "tokens")
        }
        entry = await storage.call("append", key, ["a"])
        assert await storage.read_stream(f"{key}:events", "0", 10, 0) == [(entry, {b"value": b"a"})]


@pytest.mark.crash
async def test_a_killed_primary_is_replaced(servers: Cluster, storage: ClusterStorage) -> None:
    key = KEYS[0]
    owner = await servers.owner(key)
    assert await storage.call("count", key, ["a"], wait="replicated") == b"1"
    listener = await Listener().subscribe(storage, key, f"{key}:wake")
    owner.kill()
    assert await storage.call("count", key, ["b"]) == b"2"
    assert await listener.change() is False
    assert await listener.change() is True
    assert await storage.call("publish", key, [f"{key}:wake", "a"]) == 1
    assert await listener.message() == b"a"
    assert await asyncio.gather(*(storage.call("count", other, ["c"]) for other in KEYS))


@pytest.mark.crash
async def test_a_manual_failover_loses_nothing(servers: Cluster, storage: ClusterStorage) -> None:
    key = KEYS[0]
    done = asyncio.Event()
    count = 0

    async def add() -> None:
        nonlocal count
        while not done.is_set():
            await storage.call("count", key, [f"{count}"])
            count += 1

    adding = asyncio.ensure_future(add())
    replica = await servers.replica_of(await servers.owner(key))
    await replica.command("CLUSTER", "FAILOVER")
    await eventually(lambda: _owns(servers, key, replica.port), "the replica has taken over")
    before = count
    await until(lambda: count > before + 20)  # the new primary has counted
    done.set()
    await adding
    assert await storage.call("counted", key, []) == str(count).encode()


async def _owns(servers: Cluster, key: str, port: int) -> bool:
    return (await servers.owner(key)).port == port


async def test_calls_wait_for_a_cluster_slot_that_moves_key_by_key(servers: Cluster, storage: ClusterStorage) -> None:
    key = KEYS[0]
    slot = slot_of(key)
    source = await servers.owner(key)
    target = next(one for one in servers.primaries if one is not source)
    ids = [await node_id(one) for one in (source, target)]
    await storage.call("count", key, ["a"])
    listener = await Listener().subscribe(storage, key, f"{key}:wake")
    await target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
    await source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
    await source.command("MIGRATE", "127.0.0.1", target.port, f"{key}:tokens", 0, 5000)
    with pytest.raises(StorageUnavailable):
        await storage.call("count", key, ["b"], timeout=0.3)
    assert await source.command("GET", f"{key}:count") == b"1"
    waiting = asyncio.ensure_future(storage.call("count", key, ["b"]))
    await source.command("MIGRATE", "127.0.0.1", target.port, f"{key}:count", 0, 5000)
    await source.command("MIGRATE", "127.0.0.1", target.port, f"{key}:executions", 0, 5000)
    for one in (target, source):
        await one.command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
    assert await waiting == b"2"
    assert await target.command("GET", f"{key}:count") == b"2"
    assert [await listener.change(), await listener.change()] == [False, True]
    assert await storage.call("publish", key, [f"{key}:wake", "a"]) == 1
    assert await listener.message() == b"a"


async def test_a_key_that_moves_to_a_node_that_was_read_before_is_found(
    servers: Cluster, storage: ClusterStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(*(storage.call("count", key, ["t"]) for key in KEYS))
    # The nodes are read in the order of their addresses.
    target, *_, source = sorted(servers.primaries, key=lambda one: one.port)
    owners = [await servers.owner(key) for key in KEYS]
    moved = KEYS[owners.index(source)]
    scan_node, read = server._scan_node, list[Node]()  # pyright: ignore[reportPrivateUsage]

    async def scan_and_move(node: Node, match: str, deadline: float) -> list[bytes] | Exception:
        found = await scan_node(node, match, deadline)
        read.append(node)
        if len(read) == 1:
            await _move(moved, ["count", "executions", "tokens"], source, target)
        return found

    monkeypatch.setattr(server, "_scan_node", scan_and_move)
    assert await find_keys(storage, "glide:{*}:count") == sorted(f"{key}:count".encode() for key in KEYS)


async def _move(key: str, names: list[str], source: Server, target: Server) -> None:
    """Move the cluster slot of a queue with its store keys."""
    slot, ids = slot_of(key), [await node_id(one) for one in (source, target)]
    await target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
    await source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
    for name in names:
        await source.command("MIGRATE", "127.0.0.1", target.port, f"{key}:{name}", 0, 5000)
    for one in (target, source):
        await one.command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
