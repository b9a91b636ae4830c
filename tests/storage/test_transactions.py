"""Transactions: one attempt over an open connection, which is executed as a whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from glidemq_async.functions.calling import Arg, TransactionStore
from glidemq_async.storage import Endpoint, RedisStorage
from glidemq_async.storage.redis.wire import ReplyError
from tests.storage.proxy import proxied
from tests.storage.small_library import KEY, LIBRARY
from tests.support.servers import Server

VALUE = f"{KEY}:value"


def increments(*others: Sequence[Arg]) -> list[Sequence[Arg]]:
    """Return commands that increment the value twice, with others between them."""
    return [("INCR", VALUE), *others, ("INCR", VALUE)]


async def test_a_transaction_returns_the_replies_of_its_commands(storage: RedisStorage) -> None:
    assert isinstance(storage, TransactionStore)
    await storage.connect()
    replies = await storage.transact(KEY, increments(("LPUSH", VALUE, "x")))
    assert replies is not None
    first, refused, second = replies
    assert (first, second) == (1, 2)
    assert isinstance(refused, ReplyError)
    assert str(refused).startswith("WRONGTYPE")
    assert await storage.call("echo", KEY, [b"x"]) == b"x"


async def test_a_command_that_the_server_does_not_know_cancels_the_transaction(
    storage: RedisStorage, server: Server
) -> None:
    await storage.connect()
    assert await storage.transact(KEY, increments(("NOSUCHCOMMAND",))) is None
    assert await server.command("GET", VALUE) is None
    assert await storage.call("echo", KEY, [b"x"]) == b"x"


async def test_a_storage_without_an_open_connection_sends_no_transaction(server: Server) -> None:
    storage = RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY)
    assert await storage.transact(KEY, increments()) is None
    assert await server.command("GET", VALUE) is None
    await storage.close()


async def test_a_user_without_multi_sends_no_transaction(server: Server) -> None:
    await server.command("ACL", "SETUSER", "narrow", "on", ">secret", "~*", "&*", "+@all", "-multi")
    endpoint = Endpoint("127.0.0.1", server.port, username="narrow", password="secret")
    async with RedisStorage(endpoint, library=LIBRARY) as storage:
        assert await storage.transact(KEY, increments()) is None
        assert await storage.transact(KEY, increments()) is None
        assert await server.command("GET", VALUE) is None
        assert await storage.call("echo", KEY, [b"x"]) == b"x"


async def test_a_lost_reply_is_not_repeated(server: Server) -> None:
    async with proxied(server) as proxy, proxy.storage(LIBRARY) as storage:
        await storage.connect()
        assert await storage.transact(KEY, increments()) == [1, 2]
        proxy.cut_replies(b"INCR")
        assert await storage.transact(KEY, increments()) is None
        assert await server.command("GET", VALUE) == b"4"
        assert await storage.call("echo", KEY, [b"x"]) == b"x"
