"""Connections that redis-py opens and the library takes over: every kind, login and option."""

# The hand-over relies on attributes that are private to redis-py. pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import gc
import ssl
import warnings
from pathlib import Path
from urllib.parse import quote

import pytest
import uvloop
from redis.asyncio.connection import (
    URL_QUERY_ARGUMENT_PARSERS,
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.credentials import CredentialProvider

from glidemq_async import StorageUnavailable
from glidemq_async.storage import Endpoint, RedisStorage, open_storage
from glidemq_async.storage.redis.connections import LoginRefused, dial
from glidemq_async.storage.redis.handover import take_over
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.url_options import known_options
from glidemq_async.storage.redis.wire import Reply
from tests.storage.small_library import KEY, LIBRARY
from tests.storage.tls import make_certificate, tls_proxy
from tests.support.servers import Server, standalone
from tests.support.slow_link import SlowLink

HINT = "redis-py has changed what handover.py relies on; read the comment there"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


async def ask(endpoint: Endpoint, *words: str) -> Reply:
    """Send one command over a new connection."""
    wire = await dial(endpoint)
    try:
        return await wire.send(pack(*words), asyncio.get_running_loop().time() + 5)
    finally:
        wire.drop()
        await asyncio.sleep(0)


def endpoint_of(url: str) -> Endpoint:
    storage = open_storage(url)
    assert isinstance(storage, RedisStorage)
    return storage.endpoint


async def _facts(kind: type[AbstractConnection], **kwargs: object) -> None:
    connection = kind(**kwargs, protocol=2, driver_info=None)  # type: ignore[arg-type]
    assert not connection.is_connected, HINT
    await connection.connect()  # type: ignore[no-untyped-call]
    reader, writer = connection._reader, connection._writer  # pyright: ignore[reportPrivateUsage]
    assert isinstance(reader, asyncio.StreamReader), HINT
    assert isinstance(writer, asyncio.StreamWriter), HINT
    assert not getattr(reader, "_buffer"), HINT  # noqa: B009 - the type does not show it
    del reader, writer
    wire = take_over(connection, "here")
    assert not connection.is_connected, HINT
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del connection
        gc.collect()
    assert wire.alive, HINT
    value = "x" * 200_000
    assert await wire.send(pack("ECHO", value), asyncio.get_running_loop().time() + 5) == value.encode()
    wire.drop()
    await asyncio.sleep(0)


async def _all_facts(certificate: tuple[Path, Path]) -> None:
    async with standalone() as server, standalone(unix=True) as local:
        await server.command("CONFIG", "SET", "requirepass", "pw")
        login = {"password": "pw", "db": 2}
        await _facts(Connection, host="127.0.0.1", port=server.port, **login)
        await _facts(UnixDomainSocketConnection, path=local.path)
        async with tls_proxy(server, certificate) as port:
            ca = str(certificate[1])
            await _facts(SSLConnection, host="127.0.0.1", port=port, ssl_ca_certs=ca, **login)


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_connection_of_redis_py_can_be_taken_over(runner: object, certificate: tuple[Path, Path]) -> None:
    assert callable(runner)
    runner(_all_facts(certificate))


async def test_a_connection_that_ends_during_the_login_is_reported() -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        for password in (None, "pw"):
            with pytest.raises(ConnectionError, match=r"closed|lost"):
                await dial(Endpoint("127.0.0.1", port, password=password))


# Logins


async def test_every_kind_of_login_works() -> None:
    async with standalone() as server:
        await server.command("ACL", "SETUSER", "ann", "on", ">p%40ss", "~*", "+@all")
        await server.command("CONFIG", "SET", "requirepass", "pw")
        here = f"127.0.0.1:{server.port}"
        for url in (
            f"redis://:pw@{here}/3",
            f"redis://{here}?password=pw&db=3",
            f"redis://ann:{quote('p%40ss')}@{here}/3",
            f"redis://{here}/3?username=ann&password={quote('p%40ss')}&client_name=shop",
        ):
            info = await ask(endpoint_of(url), "CLIENT", "INFO")
            assert isinstance(info, bytes)
            assert b"db=3" in info
            assert (b"user=ann" in info) == ("ann" in url)
            assert (b"name=shop" if "shop" in url else b"name=glidemq-async-") in info
        for url in (f"redis://{here}", f"redis://:wrong@{here}", f"redis://bob:pw@{here}"):
            with pytest.raises(LoginRefused, match=r"refused the login: (NOAUTH|WRONGPASS) .*Check the user"):
                await dial(endpoint_of(url))
        with pytest.raises(ConnectionError, match="DB index is out of range"):
            await dial(endpoint_of(f"redis://:pw@{here}/99"))


async def test_a_login_works_on_a_unix_socket() -> None:
    async with standalone(unix=True) as server:
        await server.command("CONFIG", "SET", "requirepass", "pw")
        assert await ask(endpoint_of(f"unix://:pw@{server.path}?db=1"), "PING") == b"PONG"
        with pytest.raises(LoginRefused, match="WRONGPASS"):
            await dial(endpoint_of(f"unix://:wrong@{server.path}"))
        with pytest.raises(FileNotFoundError):
            await dial(Endpoint(path=f"{server.path}-other"))


async def test_missing_permissions_of_the_login_are_reported() -> None:
    async with standalone() as server:
        await server.command("ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all", "-client", "-select")
        endpoint = Endpoint("127.0.0.1", server.port, username="ann", password="pw")
        assert await ask(endpoint, "PING") == b"PONG"
        with pytest.raises(LoginRefused, match=r"NOPERM.*Add to the user: \+select"):
            await dial(Endpoint("127.0.0.1", server.port, username="ann", password="pw", db=1))


class Vault(CredentialProvider):
    """A credential provider whose password changes."""

    def __init__(self) -> None:
        self.password = "first"
        self.problem: Exception | None = None

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        if self.problem is not None:
            raise self.problem
        return ("default", self.password)


async def test_a_credential_provider_is_asked_for_each_connection() -> None:
    vault = Vault()
    async with standalone() as server:
        await server.command("CONFIG", "SET", "requirepass", "first")
        endpoint = Endpoint("127.0.0.1", server.port, options={"credential_provider": vault})
        async with RedisStorage(endpoint, library=LIBRARY) as storage:
            assert await storage.call("count", KEY, ["a"]) == b"1"
            wire = await dial(endpoint)
            deadline = asyncio.get_running_loop().time() + 5
            assert await wire.send(pack("CONFIG", "SET", "requirepass", "second"), deadline) == b"OK"
            wire.drop()
            with pytest.raises(LoginRefused):
                await dial(endpoint)
            vault.password = "second"
            assert await ask(endpoint, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") == 1
            assert await storage.call("count", KEY, ["b"]) == b"2"
        vault.problem = RuntimeError("the vault is sealed")
        with pytest.raises(ConnectionError, match="the vault is sealed"):
            await dial(endpoint)
    with pytest.raises(StorageUnavailable, match=r"options .* invalid: .*credential_provider"):
        await dial(Endpoint(password="pw", options={"credential_provider": vault}))


# Options of URLs

VALUES = {
    "client_name": "shop",
    "decode_responses": "true",
    "encoding": "ascii",
    "encoding_errors": "replace",
    "health_check_interval": "1",
    "legacy_responses": "false",
    "lib_name": "shop",
    "lib_version": "1",
    "max_connections": "1",
    "protocol": "3",
    "retry_on_timeout": "true",
    "socket_connect_timeout": "4.5",
    "socket_keepalive": "no",
    "socket_read_size": "4096",
    "socket_timeout": "4.5",
    "ssl_cert_reqs": "required",
    "ssl_check_hostname": "true",
    "ssl_ciphers": "ECDHE+AESGCM",
    "ssl_exclude_verify_flags": "VERIFY_X509_STRICT",
    "ssl_include_verify_flags": "VERIFY_X509_TRUSTED_FIRST",
    "ssl_min_version": str(int(ssl.TLSVersion.TLSv1_2)),
    "ssl_password": "none needed",
}
"""A value for each option of redis-py's URLs that is not a file."""


async def test_every_option_of_a_url_is_accepted(server: Server, certificate: tuple[Path, Path]) -> None:
    key, cert = map(str, certificate)
    files = {
        "ssl_ca_certs": cert,
        "ssl_ca_path": str(Path(cert).parent),
        "ssl_ca_data": await asyncio.to_thread(Path(cert).read_text),
        "ssl_certfile": cert,
        "ssl_keyfile": key,
    }
    values = VALUES | files
    assert known_options(Endpoint(tls=True)) == values.keys(), (
        "add a value for this new option of redis-py to the table above"
    )
    assert URL_QUERY_ARGUMENT_PARSERS.keys() - values.keys() == {"db", "timeout"}
    async with tls_proxy(server, certificate) as port:
        for name, value in values.items():
            more = {"ssl_ca_certs": cert, name: value}
            if name == "ssl_certfile":
                more["ssl_keyfile"] = key
            if name in ("ssl_keyfile", "ssl_password"):
                more |= {"ssl_certfile": cert, "ssl_keyfile": key}
            query = "&".join(f"{one}={quote(text, safe='')}" for one, text in more.items())
            assert await ask(endpoint_of(f"rediss://127.0.0.1:{port}?{query}"), "PING") == b"PONG", name
    for name in sorted(known_options(Endpoint())):
        assert await ask(endpoint_of(f"{server.url}?{name}={VALUES[name]}"), "PING") == b"PONG", name


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://h?socket_timeout=soon", "Invalid value for 'socket_timeout'"),
        ("rediss://h?ssl_cert_reqs=maybe", "maybe"),
        ("rediss://h?ssl_include_verify_flags=NONE", "ssl_include_verify_flags"),
        ("unix:///s?socket_keepalive=1", "'socket_keepalive' is unknown"),
        ("unix:///s?ssl_ca_certs=x", "needs TLS"),
        ("redis+cluster://a,b?socket_magic=1", "'socket_magic' is unknown"),
        ("redis+sentinel://a/main?socket_magic=1", "'socket_magic' is unknown"),
    ],
)
def test_wrong_options_are_refused_when_the_url_is_read(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        open_storage(url)


async def test_the_connect_timeout_is_an_option() -> None:
    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(stay_silent, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(TimeoutError, match=r"did not reply within 0\.2 s"):
            await dial(endpoint_of(f"redis://:pw@127.0.0.1:{port}?socket_connect_timeout=0.2"))


async def test_a_silent_connection_is_replaced_after_socket_timeout() -> None:
    async with (
        standalone() as server,
        SlowLink(server.port) as link,
        RedisStorage(endpoint_of(f"redis://127.0.0.1:{link.port}?socket_timeout=0.2"), library=LIBRARY) as storage,
    ):
        assert await storage.call("count", KEY, ["a"]) == b"1"
        link.silence()
        with pytest.raises(StorageUnavailable):
            await storage.call("count", KEY, ["b"], timeout=1.5)
        # Without the option, the first connection would have had all this time.
        assert link.connections > 1
