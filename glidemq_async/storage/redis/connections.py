"""Open a connection with redis-py and hand it over to `Wire`.

redis-py knows TCP, TLS, unix sockets, logins and credential providers. It is imported when the first connection is
opened, because its import takes longer than the import of this package; see also `narrow_import`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from glidemq_async.errors import StorageUnavailable
from glidemq_async.storage.redis.access import missing_rule
from glidemq_async.storage.redis.handover import abandon, take_over
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.narrow_import import import_connections
from glidemq_async.storage.redis.wire import Reply, ReplyError, Wire

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

CONNECT_SECONDS: Final = 5.0
"""Seconds that opening a connection may take, unless the option `socket_connect_timeout` sets them."""

# Options of redis-py that have no meaning here, because the wire reads replies (always bytes of RESP2), watches its
# connection and retries calls itself. A retry by redis-py could execute a write twice.
_UNUSED: Final = frozenset(
    {
        "client_name",  # sent separately, because a user may lack the permission for it
        "connection_pool",
        "decode_responses",
        "driver_info",
        "encoder_class",
        "encoding",
        "encoding_errors",
        "event_dispatcher",
        "health_check_interval",
        "himport_registry",
        "legacy_responses",
        "lib_name",
        "lib_version",
        "maint_notifications_config",
        "maint_notifications_pool_handler",
        "maintenance_notification_hash",
        "maintenance_state",
        "max_connections",
        "orig_host_address",
        "orig_socket_connect_timeout",
        "orig_socket_timeout",
        "oss_cluster_maint_notifications_handler",
        "parser_class",
        "protocol",
        "response_callbacks",
        "retry",
        "retry_on_error",
        "retry_on_timeout",
        "socket_connect_timeout",
        "socket_timeout",
    }
)


# A value without a connection, so that one endpoint can open any number of them, in several event loops and after a
# fork. Passwords are not part of its repr, because it appears in errors and logs.
@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a server and the options to connect to it.

    The server listens on the unix socket `path`, or on `host` and `port`, with TLS if `tls` is set. `username` and
    `password` are the login, and `db` is the number of the database. `options` are further keyword arguments of
    redis-py's connection classes, such as `ssl_ca_certs` or `credential_provider`. `connection_class` replaces the
    class of redis-py that opens the connection.
    """

    host: str = "localhost"
    port: int = 6379
    path: str | None = None
    tls: bool = False
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    db: int = 0
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False, repr=False)
    connection_class: type[AbstractConnection] | None = field(default=None, repr=False)

    @property
    def where(self) -> str:
        """The address as messages show it."""
        return self.path if self.path is not None else f"{self.host}:{self.port}"

    def at(self, host: str, port: int) -> Endpoint:
        """Return an endpoint with the same login and options at another address."""
        return replace(self, host=host, port=port, path=None)


def connection_options(endpoint: Endpoint) -> tuple[type[AbstractConnection], dict[str, Any]]:
    """Return the class of redis-py that opens the connection, and its keyword arguments."""
    import_connections()
    from redis.asyncio import connection as redis

    kind = endpoint.connection_class
    kwargs = {name: value for name, value in endpoint.options.items() if name not in _UNUSED}
    kwargs |= {"db": endpoint.db, "username": endpoint.username, "password": endpoint.password}
    # The callers have a deadline for the whole login, so redis-py needs no timeouts.
    kwargs |= {"protocol": 2, "driver_info": None, "socket_timeout": None, "socket_connect_timeout": None}
    if endpoint.path is not None:
        kwargs["path"] = endpoint.path
        return kind or redis.UnixDomainSocketConnection, kwargs
    kwargs |= {"host": endpoint.host, "port": endpoint.port}
    return kind or (redis.SSLConnection if endpoint.tls else redis.Connection), kwargs


def unopened_connection(endpoint: Endpoint) -> AbstractConnection:
    """Return an unopened connection of redis-py. Raises `StorageUnavailable` for options that redis-py refuses."""
    import_connections()
    from redis.exceptions import RedisError

    kind, kwargs = connection_options(endpoint)
    try:
        return kind(**kwargs)
    except (RedisError, TypeError, ValueError) as error:
        raise StorageUnavailable(
            f"the options for the connection to {endpoint.where} are invalid: {error}. Correct the URL or the client."
        ) from error


class LoginRefused(StorageUnavailable):
    """The server can be reached and refuses the user, the password or a command of the login."""


async def dial(endpoint: Endpoint, *, lean: bool = False) -> Wire:
    """Open a connection, log in, select the database and set the connection's name.

    With `lean` the reply to the name is not awaited. A refused login then shows in the reply to the first call.

    Raises `StorageUnavailable` when another attempt cannot succeed, as with a wrong password, and `OSError` when the
    server cannot be reached now.
    """
    connection = unopened_connection(endpoint)
    seconds: float = endpoint.options.get("socket_connect_timeout") or CONNECT_SECONDS
    try:
        async with asyncio.timeout(seconds):
            return await _login(connection, endpoint, seconds, lean=lean)
    except TimeoutError as error:
        if str(error):
            raise
        hint = " to a TLS handshake: rediss:// and tls=true need a port that speaks TLS" if endpoint.tls else ""
        raise TimeoutError(f"{endpoint.where} did not reply within {seconds:g} s{hint}") from None


async def _connect(connection: AbstractConnection, endpoint: Endpoint) -> Wire:
    try:
        await connection.connect()  # type: ignore[no-untyped-call]
        return take_over(connection, endpoint.where)
    except Exception as error:
        abandon(connection)
        await asyncio.sleep(0)  # the transport closes in the next turn of the loop, which may be the last one
        # The text of a known error has all that the error of redis-py says.
        if (known := known_error(error, endpoint)) is not None:
            raise known from None
        # Other failures, such as an unreachable credential provider, may be temporary.
        raise ConnectionError(f"cannot connect to {endpoint.where}: {error}") from error
    except BaseException:
        abandon(connection)
        raise


async def _login(connection: AbstractConnection, endpoint: Endpoint, seconds: float, *, lean: bool) -> Wire:
    wire = await _connect(connection, endpoint)
    try:
        # redis-py would send the name during its login, and would fail the login if the user may not set a name.
        name = endpoint.options.get("client_name") or f"glidemq-async-{os.getpid()}"
        deadline = asyncio.get_running_loop().time() + seconds
        named = wire.send(pack("CLIENT", "SETNAME", name), deadline)
        if not lean:
            _check_name(await named, endpoint)
    except BaseException:
        wire.drop("the login failed")
        await asyncio.sleep(0)
        raise
    return wire


def _check_name(reply: Reply, endpoint: Endpoint) -> None:
    # redis-py sends no AUTH if the URL has no password. Then this command is the first one that a server with a
    # password refuses, and NOAUTH here means that the login failed.
    if isinstance(reply, ReplyError):
        code = str(reply).split(" ", 1)[0]
        if code == "NOAUTH":
            raise _refused(str(reply), endpoint)
        # The name only helps readers of CLIENT LIST, so a user without the permission may connect.
        if code != "NOPERM":
            raise ConnectionError(f"cannot connect to {endpoint.where}: {reply}")
    elif isinstance(reply, Exception):
        raise reply


def _refused(text: str, endpoint: Endpoint) -> LoginRefused:
    return LoginRefused(
        f"{endpoint.where} refused the login: {text.rstrip('.')}. Check the user name and password in the URL."
    )


def _forbidden(text: str, endpoint: Endpoint) -> LoginRefused:
    return LoginRefused(
        f"{endpoint.where} does not allow the login: {text.rstrip('.')}. Add to the user: {missing_rule(text)}."
    )


def known_error(error: Exception, endpoint: Endpoint) -> Exception | None:
    """Return the error of `dial` for an error of redis-py, None for an unknown one."""
    from redis import exceptions

    # redis-py wraps the error of the socket, and on unix sockets its own errors too.
    for inner in _chain(error):
        if isinstance(inner, exceptions.AuthenticationError):
            return _refused(_with_code(inner), endpoint)
        if isinstance(inner, exceptions.NoPermissionError):
            return _forbidden(_with_code(inner), endpoint)
        if isinstance(inner, OSError):
            return inner
    return None


def _chain(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


def _with_code(error: Exception) -> str:
    # redis-py removes the code from the text of an error reply.
    code = getattr(error, "status_code", None)
    return f"{code} {error}" if code else str(error)
