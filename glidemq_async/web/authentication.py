"""Authentication: find out who sends a request."""

from __future__ import annotations

import inspect
from ipaddress import ip_address
from typing import Final

from starlette.requests import HTTPConnection

from glidemq_async.ops.access import Identity
from glidemq_async.ops.tokens import Tokens
from glidemq_async.web.problems import RequestError
from glidemq_async.web.settings import Access

LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
SESSION_COOKIE: Final = "glidemq_session"
"""A cookie with an access token, for browsers."""
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


class Authentication:
    """Finds the identity of requests, by the ways that an Access allows."""

    def __init__(self, access: Access, tokens: Tokens) -> None:
        self._access = access
        self._tokens = tokens

    async def identify(self, connection: HTTPConnection, address: str) -> Identity:
        """Return the identity of a request. Raises RequestError with the status 401."""
        for find in (self._by_application, self._by_proxy, self._by_token, self._by_loopback):
            identity = await find(connection, address)
            if identity is not None:
                return identity
        raise RequestError(401, "unauthenticated", self._advice(), {"WWW-Authenticate": 'Bearer realm="glidemq"'})

    async def _by_application(self, connection: HTTPConnection, _address: str) -> Identity | None:
        if self._access.authenticate is None:
            return None
        found = self._access.authenticate(connection)
        return await found if inspect.isawaitable(found) else found

    async def _by_proxy(self, connection: HTTPConnection, address: str) -> Identity | None:
        proxy = self._access.proxy
        if proxy is None or not proxy.trusts(address):
            return None
        # Two headers of this name: one of them may come from the client.
        users = connection.headers.getlist(proxy.header)
        return proxy.identity(users[0]) if len(users) == 1 and users[0] else None

    async def _by_token(self, connection: HTTPConnection, _address: str) -> Identity | None:
        if not self._access.tokens:
            return None
        token = bearer_token(connection) or connection.cookies.get(SESSION_COOKIE, "")
        return await self._tokens.identity(token) if token else None

    async def _by_loopback(self, connection: HTTPConnection, address: str) -> Identity | None:
        # A client whose token is refused must not get the rights of an admin.
        if not self._access.open_on_loopback or "authorization" in connection.headers:
            return None
        is_direct = not any(name in connection.headers for name in _FORWARDED)
        if is_direct and is_loopback(address) and host_of(connection) in LOOPBACK_HOSTS:
            return Identity.owner("local")
        return None

    def _advice(self) -> str:
        if self._access.tokens:
            return "send a token of `glidemq ui token create` in the header `Authorization: Bearer`"
        return "the application that serves this API did not recognize the client"


def bearer_token(connection: HTTPConnection) -> str:
    """Return the token of the header Authorization, "" without one."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def host_of(connection: HTTPConnection) -> str:
    """Return the host of a request, without its port."""
    host = connection.headers.get("host", "")
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].lower()


def is_loopback(address: str) -> bool:
    """Return whether a network address is one of this machine."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
