"""The wire: replies in order, losses reported to all waiting calls, plain or TLS, on either event loop."""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from glidemq_async import StorageUnavailable
from glidemq_async.storage import Endpoint, RedisStorage, open_storage
from glidemq_async.storage.redis import connections
from glidemq_async.storage.redis import wire as wire_module
from glidemq_async.storage.redis.cluster import slot_of
from glidemq_async.storage.redis.connections import dial
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.server import servers_of
from glidemq_async.storage.redis.wire import LinkLost, Wire
from tests.storage.small_library import KEY, LIBRARY
from tests.storage.tls import make_certificate, tls_proxy
from tests.support.servers import Server, standalone


def _soon() -> float:
    return asyncio.get_running_loop().time() + 5


async def test_replies_come_in_order_and_abandoned_ones_are_skipped(server: Server) -> None:
    wire = await dial(Endpoint("127.0.0.1", server.port))
    asked = [wire.send(pack("ECHO", number), _soon()) for number in range(100)]
    for number in range(0, 100, 3):
        asked[number].cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    for number, answer in enumerate(answers):
        if number % 3:
            assert answer == str(number).encode()
        else:
            assert isinstance(answer, asyncio.CancelledError)
    wire.drop()


async def test_a_dropped_wire_fails_every_call_with_the_loss(server: Server) -> None:
    wire = await dial(Endpoint("127.0.0.1", server.port))
    waiting = wire.send(pack("BLPOP", "nothing", 0), _soon())
    wire.drop("on purpose")
    assert isinstance(await waiting, LinkLost)
    assert isinstance(await wire.send(pack("PING"), _soon()), LinkLost)
    assert not wire.alive
    await asyncio.sleep(0)
    del wire
    # An unclosed stream or connection would cause a warning here, and warnings are errors.
    gc.collect()


async def test_an_overdue_reply_drops_the_connection(server: Server) -> None:
    wire = await dial(Endpoint("127.0.0.1", server.port))
    began = asyncio.get_running_loop().time()
    later = wire.send(pack("BLPOP", "nothing", 0), began + 30)
    sooner = wire.send(pack("PING"), began + 0.05)
    assert isinstance(await sooner, LinkLost)
    assert isinstance(await later, LinkLost)
    assert 0.05 <= asyncio.get_running_loop().time() - began < 15


async def test_a_silent_connection_is_dropped_although_each_check_is_late(server: Server) -> None:
    wire = await dial(Endpoint("127.0.0.1", server.port))
    asked = wire.send(pack("BLPOP", "nothing", 0), asyncio.get_running_loop().time() + 0.2)
    for _ in range(10):
        if not wire.alive:
            break
        time.sleep(0.35)  # noqa: ASYNC251 - the test needs an event loop that is blocked
        await asyncio.sleep(0)
    assert not wire.alive
    assert isinstance(await asked, LinkLost)


async def test_a_late_check_is_repeated_after_the_time_of_a_request_at_the_latest(server: Server) -> None:
    took: list[float] = []
    while not took or (min(took) >= 1.5 and len(took) < 3):  # a host may pause now and then
        wire = await dial(Endpoint("127.0.0.1", server.port))
        asked = wire.send(pack("BLPOP", "nothing", 0), asyncio.get_running_loop().time() + 0.2)
        time.sleep(2.2)  # noqa: ASYNC251 - the test needs an event loop that is blocked
        began = asyncio.get_running_loop().time()
        assert isinstance(await asked, LinkLost)
        took.append(asyncio.get_running_loop().time() - began)
    assert min(took) < 1.5


async def test_a_request_behind_a_ping_gets_its_own_reply(server: Server) -> None:
    wire = await dial(Endpoint("127.0.0.1", server.port))
    asked = [
        (
            wire.send_behind_ping(pack("ECHO", number), _soon(), 5)
            if number % 2
            else wire.send(pack("ECHO", number), _soon())
        )
        for number in range(10)
    ]
    assert await asyncio.gather(*asked) == [str(number).encode() for number in range(10)]
    wire.drop()
    assert isinstance(await wire.send_behind_ping(pack("ECHO", 1), _soon(), 5), LinkLost)


async def test_a_user_that_may_not_ping_sends_no_further_ping() -> None:
    received = b""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        while data := await reader.read(100):
            received += data
            writer.write(b"-NOPERM no permission to run the 'ping' command\r\n" * data.count(b"PING"))
            writer.write(b"+OK\r\n" * (data.count(b"*") - data.count(b"PING")))
        writer.close()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with listening:
        wire = await dial(Endpoint("127.0.0.1", listening.sockets[0].getsockname()[1]))
        for _ in range(3):
            assert await wire.send_behind_ping(pack("ECHO", 1), _soon(), 5) == b"OK"
        assert received.count(b"PING") == 1
        wire.drop()


async def test_a_request_after_silence_is_sent_only_over_a_silent_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = await dial(Endpoint("127.0.0.1", server.port))

    def count_one() -> None:
        wire.send_after_silence(pack("INCR", "silences"), 5)

    async def counted() -> object:
        return await wire.send(pack("GET", "silences"), _soon())

    monkeypatch.setattr(wire_module, "SILENCE", 60)
    assert await wire.send(pack("SET", "silences", 0), _soon()) == b"OK"
    count_one()
    assert await counted() == b"0"
    monkeypatch.setattr(wire_module, "SILENCE", 0)
    count_one()
    count_one()  # the reply to the first one is outstanding
    assert await counted() == b"1"
    wire.drop()
    count_one()
    assert isinstance(await counted(), LinkLost)


async def test_a_request_after_silence_that_was_refused_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    received = b""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        while data := await reader.read(100):
            received += data
            writer.write(b"-NOPERM no permission to run the 'incr' command\r\n" * data.count(b"INCR"))
            writer.write(b"+OK\r\n" * (data.count(b"*") - data.count(b"INCR")))
        writer.close()

    monkeypatch.setattr(wire_module, "SILENCE", 0)
    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with listening:
        wire = await dial(Endpoint("127.0.0.1", listening.sockets[0].getsockname()[1]))
        for _ in range(3):
            wire.send_after_silence(pack("INCR", "silences"), 5)
            assert await wire.send(pack("ECHO", 1), _soon()) == b"OK"
        assert received.count(b"INCR") == 1
        wire.drop()


async def test_a_server_that_does_not_reply_to_a_request_after_silence_loses_the_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_module, "SILENCE", 0)
    wire = await dial(Endpoint("127.0.0.1", server.port))
    wire.send_after_silence(pack("BLPOP", "nothing", 0), 0.1)
    assert isinstance(await asyncio.wait_for(wire.lost, 5), LinkLost)


async def test_unexpected_data_drops_the_connection() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(b"+OK\r\n" * data.count(b"*"))
            if b"PING" in data:
                writer.write(b"+more\r\n")
        writer.close()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with listening:
        wire = await dial(Endpoint("127.0.0.1", listening.sockets[0].getsockname()[1]))
        assert await wire.send(pack("PING"), _soon()) == b"OK"
        assert isinstance(await asyncio.wait_for(asyncio.shield(wire.lost), 5), LinkLost)


def test_the_wire_works_on_uvloop() -> None:
    async def main() -> None:
        async with standalone(unix=True) as server:
            assert server.path is not None
            async with RedisStorage(Endpoint(path=server.path), library=LIBRARY) as storage:
                value = bytes(2_000_000)
                answers = await asyncio.gather(*(storage.call("echo", KEY, [value]) for _ in range(5)))
                assert answers == [value] * 5

    uvloop.run(main())


async def test_the_wire_works_over_tls(server: Server, tmp_path: Path) -> None:
    files = await asyncio.to_thread(make_certificate, tmp_path)
    async with tls_proxy(server, files) as port:
        url = f"rediss://127.0.0.1:{port}?ssl_ca_certs={files[1]}"
        storage = open_storage(url)
        assert isinstance(storage, RedisStorage)
        storage = RedisStorage(storage.endpoint, library=LIBRARY)
        async with storage:
            value = bytes(300_000)
            assert await storage.call("echo", KEY, [value]) == value
            wire = await (await servers_of(storage).find_node(KEY)).dial()
            assert isinstance(wire, Wire)
            wire.drop()
        here = Endpoint("127.0.0.1", storage.endpoint.port, tls=True)
        with pytest.raises(OSError, match=r"certificate|CERTIFICATE"):
            await dial(here)
        wire = await dial(replace(here, options={"ssl_cert_reqs": "none"}))
        assert await wire.send(pack("PING"), _soon()) == b"PONG"
        wire.drop()
        with pytest.raises(StorageUnavailable, match="Invalid SSL Certificate Requirements Flag: maybe"):
            await dial(replace(here, options={"ssl_cert_reqs": "maybe"}))


async def test_tls_to_a_port_without_tls_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.2)
    async with standalone() as server:
        with pytest.raises(OSError, match=r"did not reply within 0\.2 s to a TLS handshake: rediss://"):
            await dial(Endpoint("127.0.0.1", server.port, tls=True))


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        ("123456789", 0x31C3),
        ("glide:{123456789}:meta", 0x31C3),
        ("a{123456789}b{c}", 0x31C3),
        ("", 0),
        # This is not a hash tag, because a tag between the first braces must not be empty.
        ("foo{}{bar}", 8363),
        ("foo{{bar}}zap", slot_of("{bar")),
    ],
)
def test_the_cluster_slot_of_a_key_is_computed(key: str, slot: int) -> None:
    assert slot_of(key) == slot
