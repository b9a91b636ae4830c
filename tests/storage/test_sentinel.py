"""A primary under Sentinel is found, followed after a failover, and refused when unknown."""

from __future__ import annotations

import asyncio
import re

import pytest

from glidemq_async import Queue
from glidemq_async.errors import StorageUnavailable
from glidemq_async.storage import Endpoint, SentinelStorage
from glidemq_async.storage.redis.wire import ReplyError, as_list
from tests.storage.listener import Listener
from tests.storage.small_library import KEY, LIBRARY
from tests.support.helpers import until
from tests.support.servers import SentinelGroup, eventually, sentinel

pytestmark = [pytest.mark.sentinel, pytest.mark.crash]


def _storage(group: SentinelGroup, service: str = SentinelGroup.service) -> SentinelStorage:
    sentinels = [Endpoint("127.0.0.1", one.port) for one in group.sentinels]
    return SentinelStorage(sentinels, service, Endpoint(), library=LIBRARY)


async def test_a_failover_is_followed() -> None:
    async with sentinel() as group, _storage(group) as storage:
        assert await storage.call("count", KEY, ["a"], wait="replicated") == b"1"
        listener = await Listener().subscribe(storage, KEY, f"{KEY}:wake")
        # The client skips a dead sentinel.
        group.sentinels[0].kill()
        group.primary.kill()
        assert await storage.call("count", KEY, ["b"]) == b"2"
        assert await group.current() is group.replicas[0]
        assert await group.replicas[0].command("GET", f"{KEY}:count") == b"2"
        assert [await listener.change(), await listener.change()] == [False, True]
        assert await storage.call("publish", KEY, [f"{KEY}:wake", "a"]) == 1
        assert await listener.message() == b"a"


@pytest.mark.slow
async def test_a_planned_switch_of_the_primary_is_followed() -> None:
    async with sentinel() as group, _storage(group) as storage:
        assert await storage.call("count", KEY, ["a"], wait="replicated") == b"1"
        await group.sentinels[0].command("SENTINEL", "FAILOVER", group.service)
        # Until the old primary knows of the switch, it accepts writes that will be lost. wait="replicated" protects
        # against that.
        await eventually(lambda: _demoted(group), "the old primary is a replica")
        assert await storage.call("count", KEY, ["b"]) == b"2"
        assert await group.replicas[0].command("GET", f"{KEY}:count") == b"2"


async def _demoted(group: SentinelGroup) -> bool:
    role = as_list(await group.primary.command("ROLE"))
    return role is not None and role[0] == b"slave"


async def test_a_client_that_connects_during_a_planned_failover_finds_the_new_primary() -> None:
    async with sentinel() as group:
        async with _storage(group) as storage:
            assert await storage.call("count", KEY, ["a"], wait="replicated") == b"1"
        await group.sentinels[0].command("SENTINEL", "FAILOVER", group.service)
        await eventually(lambda: _promoted(group), "the replica is promoted")
        assert not await _demoted(group), "the old primary still takes writes, and will lose them"
        async with _storage(group) as storage:
            assert await storage.call("count", KEY, ["b"]) == b"2"
        assert await group.replicas[0].command("GET", f"{KEY}:count") == b"2"


async def _promoted(group: SentinelGroup) -> bool:
    role = as_list(await group.replicas[0].command("ROLE"))
    return role is not None and role[0] == b"master"


async def test_an_unknown_service_is_unavailable() -> None:
    async with sentinel() as group:
        storage = _storage(group, "other")
        with pytest.raises(StorageUnavailable, match="names no primary of the service 'other' that is up"):
            await storage.call("count", KEY, ["a"], timeout=2)
        await storage.close()


async def test_sentinels_that_are_down_are_named_with_the_reasons() -> None:
    sentinels = [Endpoint("127.0.0.1", port) for port in (1, 2)]
    refused = r"\[Errno 111\] Connect[^<>;]*"
    expected = (
        r"cannot reach redis\+sentinel://127.0.0.1:1,127.0.0.1:2/main \(tried for \d\.\d s\): "
        rf"no sentinel can be reached \(127.0.0.1:1: {refused}; 127.0.0.1:2: {refused}\)\. "
        r"Start the server, or correct the URL or \$GLIDEMQ_URL\."
    )
    for service in ("main", None):
        storage = SentinelStorage(sentinels, service, Endpoint(), library=LIBRARY, timeout=0.2)
        with pytest.raises(StorageUnavailable) as caught:
            await storage.connect()
        await storage.close()
        assert re.fullmatch(expected.replace("main", service or ""), str(caught.value)), str(caught.value)


async def test_a_sentinel_that_is_down_and_one_without_the_service_have_different_reasons() -> None:
    async with sentinel() as group:
        group.sentinels[0].kill()
        down, other = (f"127.0.0.1:{one.port}" for one in group.sentinels[:2])
        storage = _storage(group, "other")
        with pytest.raises(StorageUnavailable) as caught:
            await storage.call("count", KEY, ["a"], timeout=2)
        await storage.close()
    text = str(caught.value)
    assert "no sentinel led to a primary of 'other' (" in text
    assert f"{down}: [Errno 111] Connect" in text
    assert f"{other}: names no primary of the service 'other' that is up;" in text


async def test_a_planned_failover_loses_no_acknowledged_job() -> None:
    async with sentinel() as group, Queue("q", group.url) as queue:
        acknowledged: list[str] = []
        ended = asyncio.Event()

        async def add() -> None:
            while not ended.is_set():
                acknowledged.append((await queue.add("work")).id)
                await asyncio.sleep(0.002)  # some 1,500 jobs a second: enough to detect each lost millisecond

        producers = [asyncio.ensure_future(add()) for _ in range(4)]
        await until(lambda: len(acknowledged) > 250)
        await group.sentinels[0].command("SENTINEL", "FAILOVER", group.service)
        await eventually(lambda: _demoted(group), "the old primary is a replica", 30)
        await until(lambda: len(acknowledged) > 500)
        ended.set()
        await asyncio.gather(*producers)
        assert await group.current() is group.replicas[0]
        found = {job.id async for job in queue.iter_jobs("waiting")}
        assert len(set(acknowledged)) == len(acknowledged)
        assert [one for one in acknowledged if one not in found] == []


async def test_a_failed_failover_leaves_the_primary_in_use() -> None:
    async with sentinel() as group, _storage(group) as storage:
        assert await storage.call("count", KEY, ["a"], wait="replicated") == b"1"
        # A stopped replica cannot be promoted, so the sentinels abort the failover.
        group.replicas[0].pause()
        await eventually(lambda: _refused(group), "the failover is refused")
        assert await storage.call("count", KEY, ["b"]) == b"2"
        group.replicas[0].resume()


async def _refused(group: SentinelGroup) -> bool:
    try:
        await group.sentinels[0].command("SENTINEL", "FAILOVER", group.service)
    except ReplyError as error:
        return "NOGOODSLAVE" in str(error)
    return False
