"""How a connection is opened: the transport, plain or TLS, and the handshake on it in one round trip.

RESP2 because its replies are bytes, int, list and None alone and cost the same as RESP3. Written here rather than taken
from redis-py, whose import costs more than that of this whole package; every deadline is ours.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from glidemq_async.errors import StorageUnavailable
from glidemq_async.storage.redis.access import missing_rule
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.wire import Reply, ReplyError, Wire

if TYPE_CHECKING:
    import ssl

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
    # Options of the TLS connection as redis-py names them; their types differ by name.
    tls_options: dict[str, Any] = field(default_factory=dict, hash=False, repr=False)

    @property
    def where(self) -> str:
        """The place for messages."""
        return self.path if self.path is not None else f"{self.host}:{self.port}"

    def at(self, host: str, port: int) -> Endpoint:
        """The same credentials at another node."""
        return replace(self, host=host, port=port, path=None)


class LoginRefused(StorageUnavailable):
    """The server is there, and does not take the user or the password."""


async def dial(endpoint: Endpoint) -> Wire:
    """Open a connection, log in, and name it.

    Raises `StorageUnavailable` when the server refuses our credentials, else `OSError` when it cannot be
    reached (worth another try).
    """
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await _connect(endpoint)
    except TimeoutError as error:
        if str(error):
            raise
        hint = " to a TLS handshake: rediss:// and tls=true are for a port that speaks TLS" if endpoint.tls else ""
        raise TimeoutError(f"{endpoint.where} gave no answer within {CONNECT_SECONDS:g} s{hint}") from error


async def _connect(endpoint: Endpoint) -> Wire:
    wire = await _open(endpoint)
    try:
        await _greet(wire, endpoint)
    except BaseException:
        wire.drop("not usable")
        # Its transport closes in the next turn of the loop, which may be the last one.
        await asyncio.sleep(0)
        raise
    return wire


async def _open(endpoint: Endpoint) -> Wire:
    loop = asyncio.get_running_loop()
    if endpoint.path is not None:
        _, wire = await loop.create_unix_connection(lambda: Wire(endpoint.where), endpoint.path)
        return wire
    context = _tls_context(endpoint) if endpoint.tls else None
    transport, wire = await loop.create_connection(
        lambda: Wire(endpoint.where), endpoint.host, endpoint.port, ssl=context
    )
    opened: socket.socket | None = transport.get_extra_info("socket")
    if opened is not None:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return wire


async def _greet(wire: Wire, endpoint: Endpoint) -> None:
    """Log in, say who we are and choose the database: sent together, since none waits for another's answer."""
    commands: list[tuple[str, ...]] = [("CLIENT", "SETNAME", f"glidemq-async-{os.getpid()}")]
    if endpoint.username:
        commands.insert(0, ("AUTH", endpoint.username, endpoint.password or ""))
    elif endpoint.password:
        commands.insert(0, ("AUTH", endpoint.password))
    if endpoint.db:
        commands.append(("SELECT", str(endpoint.db)))
    deadline = asyncio.get_running_loop().time() + CONNECT_SECONDS
    replies = [wire.send(pack(*command), deadline) for command in commands]
    for command, reply in zip(commands, replies, strict=True):
        _check(command[0], await reply, endpoint)


def _check(command: str, reply: Reply, endpoint: Endpoint) -> None:
    if isinstance(reply, ReplyError):
        word = str(reply).split(" ", 1)[0]
        if word == "NOPERM":
            _denied(command, str(reply), endpoint)
            return
        # A login fails with one of several words; but a server that is starting may say so to anything.
        if word in _LOGIN or (command == "AUTH" and word not in _LATER):
            text = str(reply).rstrip(".")
            raise LoginRefused(
                f"{endpoint.where} refused the login: {text}. Check the user name and password in the URL."
            )
        raise ConnectionError(f"cannot connect to {endpoint.where}: {reply}")
    if isinstance(reply, Exception):
        raise reply


def _denied(command: str, reply: str, endpoint: Endpoint) -> None:
    # The name of the connection is for CLIENT LIST alone. Each other command is needed.
    if command != "CLIENT":
        rule = missing_rule(reply)
        raise LoginRefused(f"{endpoint.where} does not allow {command}: {reply}. Add to the user: {rule}.")


_LOGIN: Final = frozenset({"NOAUTH", "WRONGPASS"})
_LATER: Final = frozenset({"LOADING", "BUSY", "MASTERDOWN", "TRYAGAIN"})


def _tls_context(endpoint: Endpoint) -> ssl.SSLContext:
    """Return the context for the options of a URL, which have the names that redis-py gives them."""
    import ssl

    given = endpoint.tls_options
    context = ssl.create_default_context()
    verify = given.get("ssl_cert_reqs", "required")
    if verify not in _VERIFY:
        known = ", ".join(_VERIFY)
        raise StorageUnavailable(f"ssl_cert_reqs must be one of {known}, got {verify!r}: change the URL")
    # Without a certificate that is looked at there is no name to compare.
    context.check_hostname = bool(given.get("ssl_check_hostname", True)) and verify != "none"
    context.verify_mode = ssl.VerifyMode[f"CERT_{verify.upper()}"]
    if "ssl_ca_certs" in given or "ssl_ca_path" in given:
        context.load_verify_locations(given.get("ssl_ca_certs"), given.get("ssl_ca_path"))
    if "ssl_certfile" in given:
        context.load_cert_chain(given["ssl_certfile"], given.get("ssl_keyfile"), given.get("ssl_password"))
    if "ssl_ciphers" in given:
        context.set_ciphers(given["ssl_ciphers"])
    return context


_VERIFY: Final = ("required", "optional", "none")
