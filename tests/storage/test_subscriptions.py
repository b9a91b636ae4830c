"""Sharded channels: delivery, confirmation, loss and recovery of the link."""

from __future__ import annotations

import asyncio
import logging

import pytest

from glidemq_async.storage import Endpoint, RedisStorage
from glidemq_async.storage.redis.connections import LoginRefused
from glidemq_async.storage.redis.node import Node
from glidemq_async.storage.redis.subscriptions import LONGEST_LOGIN_PAUSE, SubscriberLink, SubscriptionHub
from tests.storage.listener import Listener
from tests.storage.small_library import KEY, LIBRARY
from tests.support.servers import Server, eventually, standalone

CHANNEL = f"{KEY}:wake"


async def test_messages_arrive_on_their_channel_only(server: Server, storage: RedisStorage) -> None:
    one = await Listener().subscribe(storage, KEY, f"{CHANNEL}:1")
    two = await Listener().subscribe(storage, KEY, f"{CHANNEL}:2")
    assert await storage.call("publish", KEY, [f"{CHANNEL}:1", "a"]) == 1
    assert await storage.call("publish", KEY, [f"{CHANNEL}:2", b"\x00b"]) == 1
    assert (await one.message(), await two.message()) == (b"a", b"\x00b")
    assert one.messages.empty()
    # Both channels use one connection. The calls and INFO use two more.
    assert (await server.info("clients"))["connected_clients"] == "3"
    await one.close()
    await one.close()
    await eventually(lambda: _receivers(storage, f"{CHANNEL}:1", 0), "the channel is left")
    assert await storage.call("publish", KEY, [f"{CHANNEL}:2", "c"]) == 1
    assert await two.message() == b"c"
    await two.close()


async def _receivers(storage: RedisStorage, channel: str, count: int) -> bool:
    return await storage.call("publish", KEY, [channel, "?"]) == count


async def test_two_subscribers_can_share_a_channel(storage: RedisStorage) -> None:
    one = await Listener().subscribe(storage, KEY, CHANNEL)
    two = await Listener().subscribe(storage, KEY, CHANNEL)
    await storage.call("publish", KEY, [CHANNEL, "a"])
    assert (await one.message(), await two.message()) == (b"a", b"a")
    await one.close()
    await storage.call("publish", KEY, [CHANNEL, "b"])
    assert await two.message() == b"b"
    assert one.messages.empty()


async def test_a_channel_can_be_subscribed_again_immediately(storage: RedisStorage) -> None:
    other = await Listener().subscribe(storage, KEY, f"{CHANNEL}:other")
    for _ in range(20):
        one = await Listener().subscribe(storage, KEY, CHANNEL)
        closing = asyncio.ensure_future(one.close())
        two = Listener()
        two.subscription = await storage.subscribe(KEY, CHANNEL, two.messages.put_nowait, two.changes.put_nowait)
        await closing
        assert await two.change() is True
        await storage.call("publish", KEY, [CHANNEL, "a"])
        assert await two.message() == b"a"
        await two.close()
    assert other.changes.empty()


async def test_a_killed_link_is_reported_and_restored(server: Server, storage: RedisStorage) -> None:
    listener = await Listener().subscribe(storage, KEY, CHANNEL)
    for _ in range(3):
        await server.command("CLIENT", "KILL", "TYPE", "pubsub")
        assert await listener.change() is False
        assert await listener.change() is True
        await storage.call("publish", KEY, [CHANNEL, "a"])
        assert await listener.message() == b"a"


async def test_a_reset_opens_a_new_connection(server: Server, storage: RedisStorage) -> None:
    listener = await Listener().subscribe(storage, KEY, CHANNEL)
    assert listener.subscription is not None
    listener.subscription.reset()
    assert [await listener.change(), await listener.change()] == [False, True]
    await storage.call("publish", KEY, [CHANNEL, "a"])
    assert await listener.message() == b"a"


async def test_a_subscription_survives_a_restart_of_the_server() -> None:
    async with (
        standalone() as server,
        RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY) as storage,
    ):
        listener = await Listener().subscribe(storage, KEY, CHANNEL)
        server.kill()
        assert await listener.change() is False
        await server.start()
        assert await listener.change() is True
        await storage.call("publish", KEY, [CHANNEL, "a"])
        assert await listener.message() == b"a"


async def test_subscribing_waits_for_an_absent_server() -> None:
    async with standalone() as server:
        server.kill()
        storage = RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY)
        listener = Listener()
        await storage.subscribe(KEY, CHANNEL, listener.messages.put_nowait, listener.changes.put_nowait)
        await server.start()
        assert await listener.change() is True
        await storage.close()


async def test_a_failing_callback_is_logged_and_affects_no_other(
    storage: RedisStorage, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(message: bytes) -> None:
        raise LookupError(message.decode())

    with caplog.at_level(logging.ERROR, "glidemq_async.storage"):
        await storage.subscribe(KEY, CHANNEL, fail, lambda up: None)
        listener = await Listener().subscribe(storage, KEY, CHANNEL)
        await storage.call("publish", KEY, [CHANNEL, "first"])
        assert await listener.message() == b"first"
        await storage.call("publish", KEY, [CHANNEL, "second"])
        assert await listener.message() == b"second"
    assert "LookupError: first" in caplog.text


async def test_a_refused_channel_does_not_affect_others(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    await server.command("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", f"&{CHANNEL}:1")
    endpoint = Endpoint("127.0.0.1", server.port, username="app", password="secret")
    async with RedisStorage(endpoint, library=LIBRARY) as storage:
        one, refused = await Listener().subscribe(storage, KEY, f"{CHANNEL}:1"), Listener()
        with caplog.at_level(logging.WARNING, "glidemq_async.storage"):
            subscription = await storage.subscribe(
                KEY, f"{CHANNEL}:2", refused.messages.put_nowait, refused.changes.put_nowait
            )
            assert await refused.change() is False
            # A later subscriber of the same channel gets the refusal too.
            late = Listener()
            other = await storage.subscribe(KEY, f"{CHANNEL}:2", late.messages.put_nowait, late.changes.put_nowait)
            assert await late.change() is False
        await storage.call("publish", KEY, [f"{CHANNEL}:1", "a"])
        assert await one.message() == b"a"
        await subscription.close()
        await other.close()
        await one.close()
        assert one.changes.empty()
    assert len(caplog.records) == 1


class RefusingStorage:
    """A storage whose server refuses each login."""

    url = "redis://refusing"

    def __init__(self) -> None:
        self.logins = 0

    def route(self, key: str) -> int:
        del key
        return 0

    async def find_node(self, key: str) -> Node:
        del key
        self.logins += 1
        raise LoginRefused("the server refused the login")

    async def recheck_node(self, key: str, problem: Exception) -> bool:
        del key, problem
        return False


async def test_refused_logins_are_repeated_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    done = asyncio.Event()

    async def record(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 20:
            done.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "sleep", record)
    storage = RefusingStorage()
    link = SubscriberLink(SubscriptionHub(storage), storage, 0, KEY)
    await done.wait()
    await link.close()
    assert pauses[0] < 0.01
    assert min(pauses[15:20]) >= LONGEST_LOGIN_PAUSE / 2
    assert storage.logins == 20
