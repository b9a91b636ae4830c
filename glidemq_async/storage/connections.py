"""How a connection is opened with redis-py: bytes, RESP2, no retries and no socket timeout of its own.

RESP2 because its replies are bytes, int, list and None alone and cost the same as RESP3. A socket timeout
inside redis-py would lose cancellations on Python 3.11, so every deadline is ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass, field, replace
from typing import Any, Final

import redis.exceptions
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from glidemq_async.errors import StorageUnavailable

from .wire import Wire

CONNECT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how to connect: a unix socket path, or a host and port with or without TLS."""

    host: str = "localhost"
    port: int = 6379
    path: str | None = None
    tls: bool = False
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    db: int = 0
    # Options of the TLS connection as the client library names them; their types differ by name.
    tls_options: dict[str, Any] = field(default_factory=dict, hash=False, repr=False)

    @property
    def where(self) -> str:
        """The place for messages."""
        return self.path if self.path is not None else f"{self.host}:{self.port}"

    def at(self, host: str, port: int) -> Endpoint:
        """The same credentials at another node."""
        return replace(self, host=host, port=port, path=None)


def _build(endpoint: Endpoint) -> AbstractConnection:
    common: dict[str, Any] = {
        "db": endpoint.db,
        "username": endpoint.username,
        "password": endpoint.password,
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": None,
        "socket_connect_timeout": CONNECT_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "client_name": f"glidemq-async-{os.getpid()}",
        "driver_info": None,
    }
    if endpoint.path is not None:
        return UnixDomainSocketConnection(path=endpoint.path, **common)
    common |= {"host": endpoint.host, "port": endpoint.port, "socket_keepalive": True}
    if endpoint.tls:
        return SSLConnection(**endpoint.tls_options, **common)
    return Connection(**common)


async def dial(endpoint: Endpoint) -> Wire:
    """Open a connection and hand its transport to a `Wire`.

    Raises `StorageUnavailable` when the server refuses our credentials, else `OSError` when it cannot be
    reached (worth another try).
    """
    connection = _build(endpoint)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.connect()  # type: ignore[no-untyped-call]
        return Wire(connection, endpoint.where)
    except BaseException as error:
        await _discard(connection)
        if isinstance(error, redis.exceptions.AuthenticationError | redis.exceptions.NoPermissionError):
            raise _refused(endpoint, error) from error
        if isinstance(error, redis.exceptions.RedisError):
            if str(error).startswith(("NOAUTH", "WRONGPASS")):
                raise _refused(endpoint, error) from error
            raise ConnectionError(f"cannot connect to {endpoint.where}: {error}") from error
        raise


def _refused(endpoint: Endpoint, error: BaseException) -> StorageUnavailable:
    return StorageUnavailable(
        f"{endpoint.where} refused the login: {error}. Check the user name and password in the URL."
    )


async def _discard(connection: AbstractConnection) -> None:
    with contextlib.suppress(redis.exceptions.RedisError, OSError):
        await connection.disconnect(nowait=True)
