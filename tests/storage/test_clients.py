"""Storages for the redis-py clients that an application already has."""

# redis-py's own annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import redis
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster, Sentinel
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.cluster import LoadBalancingStrategy
from redis.credentials import UsernamePasswordCredentialProvider

from glidemq_async import GlideMQ, Job, Queue, StorageUnavailable, Worker
from glidemq_async.storage import ClusterStorage, RedisStorage, SentinelStorage, StorageLike, open_storage
from tests.storage.tls import make_certificate, tls_proxy
from tests.support.servers import Server, cluster, sentinel, standalone


async def _double(job: Job[int, int]) -> int:
    return job.data * 2


async def works(client: StorageLike) -> None:
    """Check that a queue and a worker on the client's server do a job."""
    async with Queue[int, int]("q", client) as queue, Worker("q", _double, client, handle_signals=False):
        job = await queue.add("double", 21)
        assert await job.result(timeout=20) == 42


async def test_a_client_of_one_server_can_be_passed(server: Server) -> None:
    await server.command("CONFIG", "SET", "requirepass", "pw")
    # The options that change replies and retries of the client do not affect the storage.
    client = Redis(
        host="127.0.0.1", port=server.port, db=1, password="pw", decode_responses=True, protocol=3,
        retry=Retry(ExponentialBackoff(), 5), health_check_interval=1, client_name="shop",
    )  # fmt: skip
    async with client:
        await client.set("mine", "value")
        await works(client)
        # The client belongs to the application and is still open.
        assert await client.get("mine") == "value"
        assert [key async for key in client.scan_iter("glide:{q}:*")]
        names = [one["name"] for one in await client.client_list()]
        assert set(names) == {"shop"}, "the storage has closed its connections"


@pytest.mark.parametrize("kind", ["url", "pool", "unix", "provider", "tls"])
async def test_clients_of_every_kind_of_connection_can_be_passed(kind: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(standalone(unix=kind == "unix"))
        await server.command("CONFIG", "SET", "requirepass", "pw")
        client: Redis
        if kind == "url":
            client = Redis.from_url(f"redis://:pw@127.0.0.1:{server.port}/2?socket_timeout=3")
        elif kind == "pool":
            pool = BlockingConnectionPool(host="127.0.0.1", port=server.port, password="pw", max_connections=1)
            client = Redis.from_pool(pool)
        elif kind == "unix":
            client = Redis(unix_socket_path=server.path, password="pw")
        elif kind == "provider":
            login = UsernamePasswordCredentialProvider("default", "pw")
            client = Redis(host="127.0.0.1", port=server.port, credential_provider=login)
        else:
            files = await asyncio.to_thread(make_certificate, tmp_path)
            port = await stack.enter_async_context(tls_proxy(server, files))
            client = Redis(host="127.0.0.1", port=port, password="pw", ssl=True, ssl_ca_certs=str(files[1]))
        await stack.enter_async_context(client)
        await works(client)
        assert await client.ping()


async def test_an_app_accepts_a_client_and_a_timeout(server: Server) -> None:
    async with Redis(host="127.0.0.1", port=server.port) as client:
        mq = GlideMQ(client, timeout=2)

        @mq.task(queue="sums")
        async def add(one: int, other: int) -> int:
            return one + other

        async with mq, mq.worker(["sums"], handle_signals=False):
            job = await add.add(1, 2)
            assert await job.result(timeout=20) == 3
            assert isinstance(mq.storage, RedisStorage)
            assert mq.storage.timeout == 2
            assert mq.storage.url == f"redis://127.0.0.1:{server.port}"
        assert await client.ping()


@pytest.mark.cluster
async def test_a_client_of_a_cluster_can_be_passed() -> None:
    async with cluster() as servers:
        first = servers.primaries[0]
        asked: list[tuple[str, int]] = []

        def remap(address: tuple[str, int]) -> tuple[str, int]:
            asked.append(address)
            return address

        client = RedisCluster(
            host="127.0.0.1",
            port=first.port,
            load_balancing_strategy=LoadBalancingStrategy.ROUND_ROBIN,
            address_remap=remap,
        )
        async with client:
            await client.set("mine", "value")
            asked.clear()
            assert type(open_storage(client)) is ClusterStorage
            await works(client)
            assert {port for _, port in asked} >= {one.port for one in servers.primaries}
            assert await client.get("mine") == b"value"


@pytest.mark.sentinel
async def test_a_client_of_a_sentinel_can_be_passed() -> None:
    async with sentinel() as group:
        await group.primary.command("ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all")
        addresses = [("127.0.0.1", one.port) for one in group.sentinels]
        async with Sentinel(addresses, socket_timeout=2, username="ann", password="pw") as found:  # type: ignore[no-untyped-call]
            client: Redis = found.master_for(group.service)
            async with client:
                storage = open_storage(client)
                assert type(storage) is SentinelStorage
                await works(client)
                assert await client.ping()
            with pytest.raises(TypeError, match=r"leads to replicas; pass sentinel\.master_for"):
                open_storage(found.slave_for(group.service))


@pytest.mark.sentinel
async def test_a_sentinel_of_one_service_can_be_passed() -> None:
    async with sentinel() as group:
        await group.primary.command("ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all")
        addresses = [("127.0.0.1", 1), *(("127.0.0.1", one.port) for one in group.sentinels)]
        async with Sentinel(addresses, socket_timeout=2, username="ann", password="pw", db=1) as found:  # type: ignore[no-untyped-call]
            storage = open_storage(found)
            assert isinstance(storage, SentinelStorage)
            async with storage, storage.clone() as clone:
                assert storage.url == clone.url
                assert storage.url.endswith(f":{group.sentinels[-1].port}/{group.service}")
            await works(found)
            client: Redis = found.master_for(group.service)
            async with client:
                assert await client.keys("glide:{q}:*"), "in the database of the client"


@pytest.mark.sentinel
async def test_a_sentinel_of_several_services_is_refused() -> None:
    async with sentinel() as group, standalone() as other:
        for one in group.sentinels:
            await one.command("SENTINEL", "MONITOR", "other", "127.0.0.1", other.port, 2)
        async with Sentinel([("127.0.0.1", one.port) for one in group.sentinels]) as found:  # type: ignore[no-untyped-call]
            refused = (
                r"redis\+sentinel://127.* does not name a service, and its sentinels watch 2 services: main, other\. "
                r"Pass sentinel\.master_for\('main'\)"
            )
            with pytest.raises(StorageUnavailable, match=refused):
                await Queue("q", found, timeout=5).connect()


@pytest.mark.sentinel
async def test_a_sentinel_without_a_service_is_tried_until_the_timeout() -> None:
    async with sentinel() as group:
        for one in group.sentinels:
            await one.command("SENTINEL", "REMOVE", group.service)
        async with Sentinel([("127.0.0.1", one.port) for one in group.sentinels]) as found:  # type: ignore[no-untyped-call]
            with pytest.raises(StorageUnavailable, match=r"no sentinel named the service to use .*watches no service"):
                await open_storage(found, timeout=0.3).connect()


def test_clients_without_asyncio_are_refused() -> None:
    with pytest.raises(TypeError, match=r"works without asyncio; pass a redis\.asyncio\.Redis instead"):
        open_storage(redis.Redis())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must be a URL, a Storage, a client of redis\.asyncio or None"):
        open_storage(object())  # type: ignore[arg-type]


async def test_options_that_cannot_work_are_reported() -> None:
    async with Redis(host="127.0.0.1", ssl=True, ssl_cert_reqs="required") as client:
        client.connection_pool.connection_kwargs["ssl_cert_reqs"] = "maybe"
        with pytest.raises(StorageUnavailable, match=r"options .* are invalid: .*maybe"):
            await Queue("q", client).add("work")
