"""Timeouts of calls, as options of URLs and of constructors, and the errors after a timeout."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from glidemq_async import GlideMQ, Queue, Worker
from glidemq_async.errors import LibraryVersionError, StorageUnavailable
from glidemq_async.jobs.job import Job
from glidemq_async.storage import Endpoint, RedisStorage, open_storage
from glidemq_async.storage.redis.server import CALL_TIMEOUT, ServerStorage
from tests.storage.small_library import KEY, LIBRARY
from tests.support.servers import Server, eventually, standalone


async def _nothing(job: Job[object, object]) -> None:
    pass


def _timeout(storage: object) -> float:
    assert isinstance(storage, ServerStorage)
    return storage.timeout


@pytest.mark.parametrize(
    "url",
    [
        "memory://",
        "file:///a/dir",
        "redis://host",
        "unix:///a/socket",
        "redis+cluster://a:1,b:2",
        "redis+sentinel://a:1/main",
    ],
)
def test_every_url_takes_a_timeout(url: str) -> None:
    assert _timeout(open_storage(url)) == CALL_TIMEOUT
    storage = open_storage(f"{url}?timeout=2.5")
    assert _timeout(storage) == _timeout(storage.clone()) == 2.5
    # A timeout in the code overrides the timeout in the URL.
    assert _timeout(open_storage(f"{url}?timeout=2.5", timeout=timedelta(seconds=4))) == 4
    for wrong in ("soon", "0", "-1"):
        with pytest.raises(ValueError, match="timeout must be"):
            open_storage(f"{url}?timeout={wrong}")


def test_queues_workers_and_apps_take_a_timeout() -> None:
    url = "redis://127.0.0.1:1"
    assert _timeout(Queue("q", url, timeout=2).storage) == 2
    assert _timeout(Worker("q", _nothing, url, timeout=3).storage) == 3
    assert _timeout(GlideMQ(url, timeout=4).storage) == 4
    with pytest.raises(ValueError, match="timeout"):
        Queue("q", url, timeout=0)
    shared = open_storage(url)
    for make in (lambda: Queue("q", shared, timeout=2), lambda: GlideMQ(shared, timeout=2)):
        with pytest.raises(ValueError, match=r"cannot change the storage .*open_storage"):
            make()


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError,
        match=r"'retries' is unknown here; the known options are: .* timeout, username",
    ):
        open_storage("redis://host?retries=3")
    with pytest.raises(ValueError, match=r"known options are: linger, timeout"):
        open_storage("file:///a?db=3")


async def test_an_outage_ends_at_the_timeout_and_reports_how_long_it_was_tried() -> None:
    async with standalone() as server, Queue("q", f"{server.url}?timeout=1") as queue:
        await queue.add("work")
        server.kill()
        began = time.monotonic()
        with pytest.raises(StorageUnavailable, match=r"\(tried for [1-9]\.\d s\)"):
            await queue.add("work")
        assert 0.95 < time.monotonic() - began < 5
        with pytest.raises(StorageUnavailable, match=r"cannot reach .* \(tried for [1-9]\.\d s\)"):
            await Queue("other", f"{server.url}?timeout=1").add("work")


async def test_a_call_tries_until_its_timeout_even_if_a_whole_pause_would_pass_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def longest(_least: float, most: float) -> float:
        return most

    # The pauses double from 5 ms. At 635 ms, the next one of 500 ms would pass the timeout.
    monkeypatch.setattr("random.uniform", longest)
    async with standalone() as server, Queue("q", f"{server.url}?timeout=1") as queue:
        await queue.add("work")
        server.kill()
        with pytest.raises(StorageUnavailable, match=r"\(tried for [1-9]\.\d s\)"):
            await queue.add("work")


async def _cannot_write(server: Server) -> bool:
    return (await server.info("persistence"))["rdb_last_bgsave_status"] == "err"


async def test_a_server_that_cannot_store_counts_as_unavailable_and_is_retried() -> None:
    # A directory in place of its file: the server cannot save, so it refuses writes.
    async with (
        standalone() as server,
        Queue("q", f"{server.url}?timeout=0.7") as queue,
        Queue("q", server.url) as patient,
    ):
        await queue.add("work")
        (server.directory / "dump.rdb").mkdir()
        await server.command("CONFIG", "SET", "save", "3600 1")
        await server.command("BGSAVE")
        await eventually(lambda: _cannot_write(server), "the server cannot save")
        with pytest.raises(StorageUnavailable, match=r"cannot store them, .*tried for .*MISCONF.*disk"):
            await queue.add("work")
        refused = await _refusals(server)
        call = asyncio.ensure_future(patient.add("work"))
        await eventually(lambda: _refuses_more(server, refused), "the server must refuse the call")
        await server.command("CONFIG", "SET", "save", "")
        await call
        assert await queue.count() == 2


async def _refusals(server: Server) -> int:
    """Return the number of calls that the server has refused because it cannot save."""
    return int((await server.info("errorstats"))["errorstat_MISCONF"].removeprefix("count="))


async def _refuses_more(server: Server, refused: int) -> bool:
    return await _refusals(server) > refused


async def test_functions_are_loaded_again_after_each_flush(server: Server) -> None:
    async with RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY) as storage:
        flushing = True

        async def flush() -> None:
            while flushing:
                await server.command("FUNCTION", "FLUSH")

        flusher = asyncio.ensure_future(flush())
        replies = [await storage.call("count", KEY, [f"{number}"]) for number in range(30)]
        flushing = False
        await flusher
        assert replies == [f"{number + 1}".encode() for number in range(30)]
        with pytest.raises(LibraryVersionError, match="no function nothing"):
            await storage.call("nothing", KEY, [])


async def test_a_payload_limit_above_the_servers_own_is_refused_at_connect() -> None:
    async with standalone("--proto-max-bulk-len", "2mb") as server:
        async with Queue("q", server.url, payload_limit=2 * 1024 * 1024) as queue:
            await queue.add("large", "x" * 2_000_000)
        too_much = Queue("q", server.url, payload_limit=3_000_000)
        with pytest.raises(ValueError, match=r"payload_limit=3000000 is more than .* \(proto-max-bulk-len 2097152\)"):
            await too_much.connect()
        await too_much.close()
