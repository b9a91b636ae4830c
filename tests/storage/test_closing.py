"""Closing during a connection attempt: waiting callers get QueueClosed, never a cancellation that they did not
request.
"""

from __future__ import annotations

import asyncio

import pytest

from glidemq_async import Queue
from glidemq_async.errors import QueueClosed
from glidemq_async.storage import ClusterStorage, Endpoint, RedisStorage
from glidemq_async.storage.redis.attempt import SharedAttempt
from glidemq_async.storage.redis.node import Node
from glidemq_async.storage.redis.server import servers_of
from glidemq_async.storage.redis.wire import Wire
from tests.storage.small_library import KEY, LIBRARY
from tests.support.servers import Server, eventually
from tests.support.slow_link import SlowLink


async def test_closing_while_others_connect_raises_queue_closed(server: Server) -> None:
    async with SlowLink(server.port) as link:
        link.silence()
        storage = RedisStorage(Endpoint("127.0.0.1", link.port), library=LIBRARY)
        calls = [asyncio.ensure_future(storage.call("count", KEY, [f"{n}"])) for n in range(3)]
        calls.append(asyncio.ensure_future(storage.call("count", KEY, ["x"], wait="replicated")))
        await link.connected.wait()
        await storage.close()
        assert [type(one) for one in await asyncio.gather(*calls, return_exceptions=True)] == [QueueClosed] * 4
        with pytest.raises(QueueClosed):
            await storage.connect()


async def test_a_task_group_gets_queue_closed(server: Server) -> None:
    async with SlowLink(server.port) as link:
        link.silence()
        queue = Queue("q", RedisStorage(Endpoint("127.0.0.1", link.port)))
        with pytest.raises(ExceptionGroup) as caught:
            await _add_and_close(queue, link)
        assert caught.group_contains(QueueClosed)
        await queue.close()


async def _add_and_close(queue: Queue, link: SlowLink) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_add(queue))
        await link.connected.wait()
        await queue.storage.close()


async def _add(queue: Queue) -> None:
    await queue.add("work")


async def test_closing_while_the_library_is_loaded_raises_queue_closed(server: Server) -> None:
    async with SlowLink(server.port) as link:
        storage = RedisStorage(Endpoint("127.0.0.1", link.port), library=LIBRARY)
        await storage.connect()
        await server.command("FUNCTION", "FLUSH")
        link.rate = 2_000
        call = asyncio.ensure_future(storage.call("count", KEY, ["x"]))
        node = await servers_of(storage).find_node(KEY)
        await eventually(lambda: _loads(node), "the library must be loading")
        await storage.close()
        with pytest.raises(QueueClosed):
            await call


async def _loads(node: Node) -> bool:
    return node._loading.under_way  # pyright: ignore[reportPrivateUsage]


async def test_closing_a_cluster_while_its_topology_is_read_raises_queue_closed(server: Server) -> None:
    async with SlowLink(server.port) as link:
        link.silence()
        storage = ClusterStorage([("127.0.0.1", link.port)], Endpoint(), library=LIBRARY)
        call = asyncio.ensure_future(storage.call("count", KEY, ["x"]))
        await link.connected.wait()
        await storage.close()
        with pytest.raises(QueueClosed):
            await call


async def test_a_cancelled_caller_does_not_end_a_shared_connection_attempt(server: Server) -> None:
    async with SlowLink(server.port) as link:
        link.silence()
        storage = RedisStorage(Endpoint("127.0.0.1", link.port), library=LIBRARY)
        first, second = (asyncio.ensure_future(storage.call("count", KEY, [f"{n}"])) for n in range(2))
        await link.connected.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        link.resume()
        assert await second == b"1"
        assert link.connections == 1
        await storage.close()


async def test_a_caller_that_is_cancelled_at_the_same_time_stays_cancelled() -> None:
    never = asyncio.Event()

    async def wait() -> None:
        await never.wait()

    attempt = SharedAttempt(wait, "waited")
    caller = asyncio.ensure_future(attempt.outcome())
    await asyncio.sleep(0)
    attempt.cancel()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_a_node_that_is_removed_while_it_connects_keeps_no_connection(server: Server) -> None:
    async with SlowLink(server.port) as link:
        link.silence()
        opened: list[Wire] = []
        storage = RedisStorage(Endpoint("127.0.0.1", link.port), library=LIBRARY)

        async def dial() -> Wire:
            opened.append(await (await servers_of(storage).find_node(KEY)).dial())
            return opened[-1]

        node = Node(dial, LIBRARY)
        call = asyncio.ensure_future(node.open())
        await link.connected.wait()
        node.retire("it serves no cluster slots")
        with pytest.raises(ConnectionAbortedError):
            await call
        link.resume()
        assert node.wire is None
        with pytest.raises(ConnectionAbortedError):
            await node.open()
        await eventually(lambda: _alone(server), "its connection must be closed")
        await storage.close()


async def _alone(server: Server) -> bool:
    # The only client is the one that asks.
    return (await server.info("clients"))["connected_clients"] == "1"
