"""Users of the server without some permissions: the functions that still work, and the errors."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from glidemq_async import Job, JobOptions, Queue, QueueEvent, QueueEvents, Worker
from glidemq_async.errors import StorageUnavailable
from glidemq_async.storage.redis import access, subscriptions
from tests.support.servers import Server, eventually, redis7_binary, standalone

GUIDE = Path(__file__).parents[2] / "docs" / "operating.md"


@pytest.fixture(params=["redis7", "embedded"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    binary = redis7_binary() if request.param == "redis7" else None
    if request.param == "redis7" and binary is None:
        pytest.skip("no redis-server on the PATH: install Debian's redis-server, or set GLIDEMQ_TEST_REDIS7")
    async with standalone(binary=binary) as running:
        yield running


async def user(server: Server, *rules: str) -> str:
    """Create a user with these rules and return the URL with its login."""
    await server.command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rules)
    return f"redis://app:secret@127.0.0.1:{server.port}"


async def double(job: Job[int]) -> int:
    return job.data * 2


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "glidemq_async.storage"]


async def connections(server: Server) -> int:
    return int((await server.info("stats"))["total_connections_received"])


async def test_a_user_without_channels_loses_no_job_and_no_result(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    url = await user(server, "~*", "+@all")
    queue: Queue[int, int] = Queue("q", url)
    worker = Worker("q", double, url, concurrency=3, poll_interval=0.1, lock_duration=1)
    with caplog.at_level(logging.WARNING, "glidemq_async"):
        async with queue, worker:
            jobs = [await queue.add("n", n) for n in range(10)]
            assert await asyncio.gather(*(job.result(10) for job in jobs)) == [2 * n for n in range(10)]
            assert await queue.add_and_wait("n", 21, wait_timeout=10) == 42
            assert not any([(await job.get_state(), job.stalled_count)[1] for job in jobs])
            before = await connections(server)
            polled = [await queue.add_and_wait("n", n, wait_timeout=10) for n in range(5)]
            assert polled == [0, 2, 4, 6, 8]
            # Only its own two INFOs. No client connects again because of a refused subscription.
            assert await connections(server) == before + 1
        assert await queue_is_sound(server)
    (warning,) = warnings(caplog)
    assert "&glide:*" in warning
    assert GUIDE.name in warning


async def queue_is_sound(server: Server) -> bool:
    async with Queue[int, int]("q", server.url) as queue:
        return await queue.check() == []


async def test_a_worker_without_wake_ups_still_becomes_idle(server: Server) -> None:
    url = await user(server, "~*", "+@all")
    ran: asyncio.Queue[int] = asyncio.Queue()

    async def note(job: Job[int]) -> None:
        ran.put_nowait(job.data)

    worker: Worker[int, None] = Worker("q", note, server.url, poll_interval=300)
    async with worker, Queue[int, int]("q", url) as without_channels, Queue[int, int]("q", server.url) as queue:

        async def is_idle() -> bool:
            return await server.command("ZCARD", "glide:{q}:idle") == 1

        await eventually(is_idle, "the worker waits")
        assert (await without_channels.add("n", 1)).outcome == "added"
        assert await is_idle()
        await queue.add("n", 2)
        async with asyncio.timeout(10):
            assert [await ran.get(), await ran.get()] == [1, 2]
        await eventually(is_idle, "the worker waits again")
        await queue.pause()
        await without_channels.add("n", 3, delay=0.05)
        await without_channels.resume()
        assert await is_idle()


@pytest.mark.parametrize("options", [JobOptions(), JobOptions(priority=1), JobOptions(lifo=True), JobOptions(key="k")])
async def test_a_job_that_its_user_may_not_push_waits(server: Server, options: JobOptions) -> None:
    url = await user(server, "~*", "+@all")
    worker: Worker[int, int] = Worker("q", double, server.url, poll_interval=300)
    async with worker, Queue[int, int]("q", url) as without_channels, Queue[int, int]("q", server.url) as queue:

        async def is_idle() -> bool:
            return await server.command("ZCARD", "glide:{q}:idle") == 1

        await eventually(is_idle, "the worker waits")
        job = await without_channels.add("n", 1, options)
        assert await is_idle()
        assert await job.get_state() in {"waiting", "prioritized", "key-waiting"}
        assert await queue.check() == []
        await queue.add("n", 2)
        assert await job.result(10) == 2


async def test_the_documented_permissions_are_sufficient(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    line = re.search(r"^ACL SETUSER app on >secret (.*)$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert line is not None
    url = await user(server, *line[1].split())
    seen: list[str] = []
    with caplog.at_level(logging.WARNING, "glidemq_async"):
        async with (
            Queue[int, int]("q", url) as queue,
            Worker("q", double, url, concurrency=2, dead_letter_queue="dead"),
            QueueEvents("q", url) as events,
        ):
            async with asyncio.timeout(30):
                assert await queue.add_and_wait("n", 1, key="k", wait_timeout=20) == 2
                await queue.set_key_limits("k", concurrency=2)
                await queue.upsert_job_scheduler("s", every=60)
                late = await queue.add("n", 2, delay=60, priority=3)
                await late.promote()
                assert await late.result(20) == 4
                async for event in events:
                    assert isinstance(event, QueueEvent)
                    seen.append(event.kind)
                    if event.kind == "completed":
                        break
            assert await queue.check() == []
            await queue.clean(0, 100, "completed")
        async with Queue[int, int]("q", url) as queue:
            await queue.obliterate(force=True)
    assert seen[0] == "added"
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("rules", "missing"),
    [
        (("~*", "&*", "+@all", "-zadd", "-xgroup|create"), "+xgroup|create +zadd"),
        (("~glide:{q}", "&*", "+@all"), "~glide:*"),
    ],
)
async def test_a_queue_reports_missing_rules(server: Server, rules: tuple[str, ...], missing: str) -> None:
    async with Queue[int, int]("other", server.url):
        pass  # loads the functions
    before = await server.command("DBSIZE")
    url = await user(server, *rules)
    with pytest.raises(StorageUnavailable, match=re.escape(f"Add to the user: {missing} (ACL SETUSER")):
        await Queue[int, int]("q", url).connect()
    assert await server.command("DBSIZE") == before


async def test_a_user_who_may_not_load_functions_gets_the_remedy(server: Server) -> None:
    url = await user(server, "~*", "&*", "+@all", "-function")
    with pytest.raises(StorageUnavailable, match=re.escape("Add to the user: +function|load; `glidemq acl`")):
        await Queue[int, int]("q", url).connect()


async def test_the_name_of_a_connection_is_optional(server: Server) -> None:
    url = await user(server, "~*", "&*", "+@all", "-client", "-info", "-config")
    async with Queue[int, int]("q", url) as queue:
        assert (await queue.add("n", 1)).id == "1"


async def test_channels_that_are_granted_later_are_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "REFUSED_SECONDS", 0.05)
    url = await user(server, "~*", "+@all")
    worker = Worker("q", double, url, poll_interval=0.1)
    async with worker:
        assert "it is not subscribed to its wake-up channel" in worker.health().problems
        await server.command("ACL", "SETUSER", "app", "&glide:*")

        async def is_ready() -> bool:
            return worker.health().ready

        await eventually(is_ready, "the worker must subscribe to the channel")


async def test_each_missing_rule_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    url = "redis://warned-once"
    with caplog.at_level(logging.WARNING, "glidemq_async"):
        access.warn(url, ["&glide:*"])
        access.warn(url, ["&glide:*"])
        access.warn(url, ["&glide:*", "&other:*"])
    assert [re.findall(r"&\w+", text)[0] for text in warnings(caplog)] == ["&glide", "&other"]
