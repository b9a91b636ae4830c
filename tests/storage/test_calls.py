"""Calls on one server: replies, errors, retries with the same arguments, cancellation."""

from __future__ import annotations

import asyncio
import logging
import traceback

import pytest
import redis.asyncio
from redis.credentials import CredentialProvider

from glidemq_async.errors import (
    LibraryVersionError,
    QueueClosed,
    QueueFull,
    StorageUnavailable,
    UnsupportedDurability,
)
from glidemq_async.storage import Endpoint, FunctionError, MemoryStorage, RedisStorage, Storage, open_storage
from glidemq_async.storage.redis.library import Library
from glidemq_async.storage.redis.wire import ReplyError
from tests.storage.proxy import proxied
from tests.storage.small_library import KEY, LIBRARY, SOURCE
from tests.support.servers import Server, eventually, redis7, redis7_binary, standalone

SYNCED = ("--appendonly", "yes", "--appendfsync", "always")
"""For servers that are killed: with a sync each second, a server with a stalled disk replies before it writes."""


async def test_replies_are_bytes_int_list_and_none(storage: RedisStorage) -> None:
    assert isinstance(storage, Storage)
    assert await storage.call("kinds", KEY, [], readonly=True) == [b"text", 7, None, [b"a", 1]]
    assert await storage.call("echo", KEY, [b"\x00\r\n\xff"], readonly=True) == b"\x00\r\n\xff"
    assert await storage.call("echo", KEY, [12]) == b"12"
    assert await storage.call("counted", KEY, []) is None


async def test_a_refusal_carries_code_and_message(storage: RedisStorage) -> None:
    with pytest.raises(FunctionError) as caught:
        await storage.call("refuse", KEY, [])
    assert (caught.value.code, caught.value.message) == ("NO_JOB", "the job is gone")
    with pytest.raises(FunctionError, match=r"[Ww]rong number of arg"):
        await storage.call("broken", KEY, [])


async def test_a_call_with_a_lost_reply_is_repeated_with_the_same_token(server: Server) -> None:
    async with proxied(server) as proxy, proxy.storage(LIBRARY) as storage:
        proxy.cut_replies(b"_count", times=3)
        assert await storage.call("count", KEY, ["token-1"]) == b"1"
        assert proxy.cut_count == 3
        assert await storage.call("executions", KEY, []) == b"4"
        assert await storage.call("counted", KEY, []) == b"1"


async def test_a_silent_server_ends_in_storage_unavailable(server: Server) -> None:
    async with proxied(server) as proxy, proxy.storage(LIBRARY) as storage:
        proxy.swallow_replies(b"_count")
        with pytest.raises(StorageUnavailable, match="count got no reply") as caught:
            await storage.call("count", KEY, ["token-1"], timeout=0.3)
        assert "redis://127.0.0.1" in str(caught.value)
        proxy.swallow_replies(None)
        assert await storage.call("count", KEY, ["token-1"]) == b"1"


async def test_a_call_waits_for_a_server_that_restarts() -> None:
    async with (
        standalone(*SYNCED) as server,
        RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY) as storage,
    ):
        assert await storage.call("count", KEY, ["a"]) == b"1"
        server.kill()
        call = asyncio.ensure_future(storage.call("count", KEY, ["b"]))
        await server.start()
        assert await call == b"2"


async def test_concurrent_calls_survive_a_killed_server() -> None:
    async with (
        standalone(*SYNCED) as server,
        RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY) as storage,
    ):
        calls = [asyncio.ensure_future(storage.call("count", KEY, [f"{n}"])) for n in range(300)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        server.kill()
        await server.start()
        calls += [asyncio.ensure_future(storage.call("count", KEY, [f"{n}"])) for n in range(300, 400)]
        await asyncio.gather(*calls)
        assert await storage.call("counted", KEY, []) == b"400"


async def test_calls_wait_while_the_server_loads() -> None:
    async with (
        standalone(
            "--appendonly",
            "yes",
            "--key-load-delay",
            "2000",
            "--loading-process-events-interval-bytes",
            "1024",
        ) as server,
        RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY) as storage,
    ):
        await storage.call("count", KEY, ["a"])
        await server.command("DEBUG", "POPULATE", 1_000, "filler", 10)
        await server.command("BGREWRITEAOF")
        await eventually(lambda: _rewritten(server), "the file is rewritten")
        seen = asyncio.ensure_future(_sees_loading(server))
        await asyncio.to_thread(server.stop)
        started = asyncio.ensure_future(server.start())
        assert await storage.call("count", KEY, ["b"]) == b"2"
        await started
        assert await seen


async def _rewritten(server: Server) -> bool:
    info = await server.info("persistence")
    return info["aof_rewrite_in_progress"] == "0" and info["aof_rewrite_scheduled"] == "0"


async def _sees_loading(server: Server) -> bool:
    async def loading() -> bool:
        try:
            await server.command("GET", "x")
        except ReplyError as error:
            return str(error).startswith("LOADING")
        return False

    await eventually(loading, "the server is loading")
    return True


async def test_a_call_waits_until_a_demoted_server_is_the_primary_again(server: Server, storage: RedisStorage) -> None:
    await storage.call("count", KEY, ["a"])
    async with standalone() as other:
        await server.command("REPLICAOF", "127.0.0.1", other.port)
        with pytest.raises(StorageUnavailable, match="READONLY"):
            await storage.call("count", KEY, ["b"], timeout=2)
        call = asyncio.ensure_future(storage.call("count", KEY, ["b"]))
        await server.command("REPLICAOF", "NO", "ONE")
        assert await call is not None


async def test_flushed_functions_are_loaded_again_once(server: Server, storage: RedisStorage) -> None:
    await server.command("FUNCTION", "FLUSH")
    await server.command("CONFIG", "RESETSTAT")
    replies = await asyncio.gather(*(storage.call("count", KEY, [f"t{n}"]) for n in range(50)))
    assert sorted(int(str(reply, "ascii")) for reply in replies if isinstance(reply, bytes)) == list(range(1, 51))
    stats = await server.info("commandstats")
    assert "calls=1," in stats["cmdstat_function|load"]


async def test_an_unknown_function_is_a_version_error(storage: RedisStorage) -> None:
    with pytest.raises(LibraryVersionError, match="no function nothing"):
        await storage.call("nothing", KEY, [])


async def test_an_older_library_is_replaced_and_a_newer_one_kept(server: Server) -> None:
    endpoint = Endpoint("127.0.0.1", server.port)
    middle = SOURCE.replace("return args[1] end", "return 'middle' end")
    newer = SOURCE.replace("return args[1] end", "return 'newer' end")
    async with RedisStorage(endpoint, library=LIBRARY) as old:
        assert await old.call("echo", KEY, ["x"]) == b"x"
        async with RedisStorage(endpoint, library=Library(newer, "2.2.0")) as new:
            assert await new.call("echo", KEY, ["x"]) == b"newer"
            async with RedisStorage(endpoint, library=Library(middle, "2.1.9")) as between:
                assert await between.call("echo", KEY, ["x"]) == b"newer"
        assert await old.call("echo", KEY, ["x"]) == b"newer"
    with pytest.raises(LibraryVersionError, match=r"2\.2\.0"):
        await RedisStorage(endpoint, library=Library(SOURCE, "3.0.0")).connect()


async def test_two_texts_of_one_version_do_not_replace_each_other(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint("127.0.0.1", server.port)
    first, second = (Library(SOURCE.replace("return args[1] end", f"return '{n}' end"), "2.5.0") for n in (1, 2))
    answers: list[object] = []
    with caplog.at_level(logging.WARNING, "glidemq_async"):
        for library in (first, second, first, second):
            async with RedisStorage(endpoint, library=library) as storage:
                answers.append(await storage.call("echo", KEY, ["x"]))
    assert answers == [b"1"] * 4
    (warning,) = [record.getMessage() for record in caplog.records if "The texts differ" in record.getMessage()]
    assert first.stamp in warning
    assert second.stamp in warning
    assert "FUNCTION DELETE" in warning


@pytest.mark.parametrize(
    ("loaded", "brought", "stays"),
    [
        ("1.5.0.dev100", "1.5.0.dev200", False),
        ("1.5.0.dev200", "1.5.0.dev100", True),
        ("1.5.0.dev200", "1.5.0", False),
        ("1.5.0", "1.5.0.dev200", True),
        ("1.5.0", "1.6.0.dev1", False),
        ("1.5.0.dev200", "1.5.0.dev200+testing", False),
        ("1.5.0.dev200+testing", "1.5.0.dev200", True),
    ],
)
async def test_development_builds_replace_only_older_ones(
    server: Server, loaded: str, brought: str, stays: bool
) -> None:
    endpoint = Endpoint("127.0.0.1", server.port)
    one, other = (Library(SOURCE.replace("return args[1] end", f"return '{v}' end"), v) for v in (loaded, brought))
    async with RedisStorage(endpoint, library=one), RedisStorage(endpoint, library=other) as storage:
        assert await storage.call("echo", KEY, ["x"]) == (loaded if stays else brought).encode()


async def test_a_full_server_refuses_adds_but_not_completions(server: Server, storage: RedisStorage) -> None:
    await server.command("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(QueueFull, match="maxmemory"):
        await storage.call("count", KEY, ["a"])
    assert await storage.call("finish", KEY, ["x"]) == b"OK"
    assert await storage.call("counted", KEY, [], readonly=True) is None


async def test_cancelled_calls_mix_up_and_lose_no_replies(server: Server, storage: RedisStorage) -> None:
    before = await server.info("stats")
    cancelled = answered = 0

    async def one(number: int) -> None:
        assert await storage.call("echo", KEY, [f"value-{number}"]) == f"value-{number}".encode()

    for number in range(3000):
        task = asyncio.ensure_future(one(number))
        for _ in range(number % 7):
            await asyncio.sleep(0)
        asked = task.cancel()
        try:
            await task
            answered += 1
            assert not asked
        except asyncio.CancelledError:
            cancelled += 1
    assert cancelled + answered == 3000
    assert cancelled > 1000
    await one(-1)
    after = await server.info("stats")
    # The connection of the storage survived: the only new one belongs to the second INFO.
    assert int(after["total_connections_received"]) - int(before["total_connections_received"]) == 1


async def test_concurrent_callers_share_one_connection_attempt(server: Server) -> None:
    async with RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY) as storage:
        await asyncio.gather(*(storage.call("count", KEY, [f"{n}"]) for n in range(200)))
        assert await storage.call("counted", KEY, []) == b"200"
        assert (await server.info("clients"))["connected_clients"] == "2"


async def test_large_values_pass(storage: RedisStorage) -> None:
    value = bytes(range(256)) * 40_000
    answers = await asyncio.gather(*(storage.call("echo", KEY, [value]) for _ in range(4)))
    assert all(answer == value for answer in answers)


async def test_a_closed_storage_raises(server: Server) -> None:
    storage = RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY)
    await storage.connect()
    await storage.close()
    await storage.close()
    with pytest.raises(QueueClosed):
        await storage.call("echo", KEY, ["x"])


async def test_closing_ends_the_waiting_calls(server: Server) -> None:
    storage = RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY)
    await storage.connect()
    server.pause()
    waiting = [asyncio.ensure_future(storage.call("echo", KEY, ["x"])) for _ in range(3)]
    waiting.append(asyncio.ensure_future(storage.call("once", KEY, ["x"], wait="replicated")))
    for _ in range(100):  # until they are on their way, which no event announces
        await asyncio.sleep(0)
    await storage.close()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    server.resume()
    assert [type(answer) for answer in answers] == [QueueClosed] * 4


@pytest.mark.redis7
@pytest.mark.skipif(redis7_binary() is None, reason="no redis-server on the path")
async def test_redis_7_serves_too() -> None:
    async with (
        redis7("--appendonly", "yes") as server,
        RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY) as storage,
    ):
        assert await storage.call("count", KEY, ["a"]) == b"1"
        with pytest.raises(FunctionError, match="NO_JOB"):
            await storage.call("refuse", KEY, [])
        await server.command("FUNCTION", "FLUSH")
        assert await storage.call("count", KEY, ["b"]) == b"2"


async def test_an_unreachable_server_is_storage_unavailable() -> None:
    storage = RedisStorage(Endpoint("127.0.0.1", 1), library=LIBRARY)
    with pytest.raises(StorageUnavailable, match=r"127\.0\.0\.1:1"):
        await storage.call("echo", KEY, ["x"], timeout=0.2)
    await storage.close()


def _shown(error: BaseException) -> list[str]:
    """Return the lines that Python prints for an error that nothing catches."""
    return "".join(traceback.format_exception(error)).splitlines()


async def test_the_traceback_of_an_unreachable_server_is_short() -> None:
    storage = RedisStorage(Endpoint("127.0.0.1", 1), library=LIBRARY, timeout=0.1)
    with pytest.raises(StorageUnavailable) as caught:
        await storage.connect()
    lines = _shown(caught.value)
    # The cause is one line without the frames of the attempts, and redis-py's error with the same text is left out.
    assert lines[0] == "ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 1)"
    assert sum(line.startswith("Traceback") for line in lines) == 1
    assert len(lines) < 30
    await storage.close()


async def test_a_failing_credential_provider_is_the_cause_with_its_frames() -> None:
    class Broken(CredentialProvider):
        def get_credentials(self) -> tuple[str]:
            raise LookupError("no secret")

    async with standalone() as server:
        client = redis.asyncio.Redis(port=server.port, credential_provider=Broken())
        storage = open_storage(client, timeout=0.1)
        with pytest.raises(StorageUnavailable, match="no secret") as caught:
            await storage.connect()
        assert any("in get_credentials" in line for line in _shown(caught.value))
        await storage.close()


async def test_a_wrong_password_fails_immediately() -> None:
    async with standalone() as server:
        await server.command("CONFIG", "SET", "requirepass", "right")
        for url in (f"redis://:wrong@127.0.0.1:{server.port}", server.url):
            storage = open_storage(url)
            with pytest.raises(StorageUnavailable, match="password") as caught:
                await storage.connect()
            assert "wrong@" not in str(caught.value)
            assert ".." not in str(caught.value)
            assert sum(line.startswith("Traceback") for line in _shown(caught.value)) == 1
            await storage.close()


@pytest.mark.parametrize(
    ("policy", "loss"), [("allkeys-lru", "no longer keep jobs"), ("volatile-lru", "add a job twice")]
)
async def test_an_evicting_server_causes_a_warning(
    server: Server, caplog: pytest.LogCaptureFixture, policy: str, loss: str
) -> None:
    await server.command("CONFIG", "SET", "maxmemory-policy", policy)
    with caplog.at_level(logging.WARNING, "glidemq_async.storage"):
        async with RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY):
            pass
    assert policy in caplog.text
    assert loss in caplog.text
    assert "noeviction" in caplog.text


async def test_replicated_needs_a_replica(server: Server) -> None:
    async with (
        RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY) as storage,
        standalone(replica_of=server) as replica,
    ):
        assert await storage.call("once", KEY, ["a"], wait="replicated") == b"first"
        assert await replica.command("HEXISTS", f"{KEY}:tokens", "a") == 1
        replica.pause()
        with pytest.raises(StorageUnavailable, match=r"stored on .* but any replica did not confirm"):
            await storage.call("once", KEY, ["b"], wait="replicated", timeout=1.5)
        # A replay writes nothing, but it must not count as confirmed.
        with pytest.raises(StorageUnavailable, match="did not confirm"):
            await storage.call("once", KEY, ["b"], wait="replicated", timeout=1.5)
        replica.resume()
        assert await storage.call("once", KEY, ["b"], wait="replicated") == b"replay"
        assert await replica.command("HEXISTS", f"{KEY}:tokens", "b") == 1


async def test_fsync_needs_an_append_only_file(storage: RedisStorage) -> None:
    with pytest.raises(UnsupportedDurability, match="appendonly"):
        await storage.call("count", KEY, ["a"], wait="fsync")
    assert await storage.call("counted", KEY, []) is None
    async with (
        standalone("--appendonly", "yes") as server,
        RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY) as other,
    ):
        assert await other.call("count", KEY, ["a"], wait="fsync") == b"1"


async def _waits(server: Server) -> bool:
    return (await server.info("clients"))["blocked_clients"] != "0"


async def test_streams_are_read_after_a_position(server: Server, storage: RedisStorage) -> None:
    events = f"{KEY}:events"
    assert await storage.read_stream(events, "0", 10, 0) == []
    first = await storage.call("append", KEY, ["a"])
    await storage.call("append", KEY, ["b"])
    assert isinstance(first, bytes)
    assert await storage.read_stream(events, "0", 1, 0) == [(first, {b"value": b"a"})]
    waiting = asyncio.ensure_future(storage.read_stream(events, "$", 10, 5))
    again = asyncio.ensure_future(storage.read_stream(events, first.decode(), 10, 0))
    assert [fields for _, fields in await again] == [{b"value": b"b"}]
    await eventually(lambda: _waits(server), "the blocking read must have reached the server")
    await storage.call("append", KEY, ["c"])
    assert [fields for _, fields in await waiting] == [{b"value": b"c"}]


async def test_a_cancelled_read_leaves_nothing_behind(server: Server, storage: RedisStorage) -> None:
    events = f"{KEY}:events"
    reading = asyncio.ensure_future(storage.read_stream(events, "0", 10, 5))
    await eventually(lambda: _waits(server), "the blocking read must have reached the server")
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    entry = await storage.call("append", KEY, ["a"])
    assert await storage.read_stream(events, "0", 10, 1) == [(entry, {b"value": b"a"})]


async def test_scan_finds_every_key_of_a_queue(storage: RedisStorage) -> None:
    await asyncio.gather(*(storage.call("count", f"glide:{{q}}:{n}", ["t"]) for n in range(700)))
    await storage.call("count", KEY, ["t"])
    found = {key async for key in storage.scan("glide:{q}:*:count")}
    assert found == {f"glide:{{q}}:{n}:count".encode() for n in range(700)}


async def test_a_clone_works_in_another_loop(storage: RedisStorage) -> None:
    twin = storage.clone()

    async def elsewhere() -> object:
        with pytest.raises(RuntimeError, match="clone"):
            await storage.call("echo", KEY, ["x"])
        async with twin:
            return await twin.call("echo", KEY, ["there"])

    assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) == b"there"
    assert await storage.call("echo", KEY, ["here"]) == b"here"


async def test_a_named_memory_storage_is_shared_and_an_unnamed_one_is_private() -> None:
    async with (
        MemoryStorage("shared", library=LIBRARY) as one,
        MemoryStorage("shared", library=LIBRARY) as two,
    ):
        assert await one.call("count", KEY, ["a"]) == b"1"
        assert await two.call("count", KEY, ["b"]) == b"2"
        async with MemoryStorage(library=LIBRARY) as private:
            assert await private.call("count", KEY, ["c"]) == b"1"
    async with MemoryStorage("shared", library=LIBRARY) as later:
        assert await later.call("counted", KEY, []) is None
    assert open_storage("memory://shared").url == "memory://shared"
