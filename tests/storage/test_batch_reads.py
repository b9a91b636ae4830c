"""Reading calls to many queues, sent together: one attempt, whose failures another call explains."""

from __future__ import annotations

import asyncio

from glidemq_async.functions.calling import BatchStore
from glidemq_async.storage import Endpoint, RedisStorage
from tests.storage.proxy import proxied
from tests.storage.small_library import LIBRARY
from tests.support.servers import Server

KEYS = ["glide:{a}", "glide:{b}", "glide:{c}"]


async def test_a_refused_call_does_not_hide_the_others(storage: RedisStorage, server: Server) -> None:
    assert isinstance(storage, BatchStore)
    await storage.connect()
    await server.command("SET", f"{KEYS[0]}:executions", "1")
    await server.command("RPUSH", f"{KEYS[1]}:executions", "a list")
    await server.command("SET", f"{KEYS[2]}:executions", "3")
    read, other = await asyncio.gather(
        storage.read_each("executions", KEYS, []), storage.call("echo", KEYS[0], [b"between"])
    )
    assert read == [b"1", None, b"3"]
    assert other == b"between"


async def test_a_storage_without_an_open_connection_sends_nothing(server: Server) -> None:
    storage = RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY)
    assert await storage.read_each("executions", KEYS, []) == [None, None, None]
    await storage.close()


async def test_a_lost_connection_leaves_no_reply_open(server: Server) -> None:
    async with proxied(server) as proxy, proxy.storage(LIBRARY) as storage:
        await storage.connect()
        proxy.cut_replies(b"executions")
        assert await storage.read_each("executions", KEYS, []) == [None, None, None]
        assert await storage.call("echo", KEYS[0], [b"x"]) == b"x"
