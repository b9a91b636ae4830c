"""The gate of the web app: authentication, origin, rates, sizes and security headers of every request."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glidemq_async.web.authentication import bearer_token
from glidemq_async.web.browsers import LOG_IN, STATIC, path_of
from glidemq_async.web.context import CONTEXT, FORM_COOKIE, RequestContext, new_form_token
from glidemq_async.web.problems import RequestError
from glidemq_async.web.settings import WebLimits

if TYPE_CHECKING:
    from glidemq_async.web.state import WebState

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
NDJSON: Final = "application/x-ndjson"
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers of every response. A response that sets one of them keeps its own, except for the first two."""
MOST_CLIENTS: Final = 10_000
"""Maximum number of clients whose rate is known. The one that was idle longest is forgotten."""


class Rates:
    """A token bucket for each client."""

    def __init__(self, limits: WebLimits) -> None:
        self._rate = limits.requests_per_second
        self._burst = limits.burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Count a request. Return 0, or the seconds until the client may send the next one."""
        now = time.monotonic()
        tokens, at = self._buckets.pop(client, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - at) * self._rate)
        allowed = tokens >= 1
        self._buckets[client] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - tokens) / self._rate


class RequestGate:
    """Checks every request before the app, and adds the context that handlers read."""

    def __init__(self, app: ASGIApp, web: WebState) -> None:
        self._app = app
        self._web = web
        self._rates = Rates(web.limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        guarded_send = _Headers(scope, send)
        try:
            if path_of(connection).startswith(STATIC):
                await self._app(scope, receive, guarded_send)
                return
            if self._logs_in(connection):
                await (await self._log_in(connection, receive))(scope, receive, guarded_send)
                return
            context = await self._admit(connection)
            limited = self._limited(connection, receive)
        except Exception as error:  # noqa: BLE001 - each becomes a response
            await self._web.refusal(connection, error)(scope, receive, guarded_send)
            return
        scope[CONTEXT] = context
        try:
            await self._app(scope, limited, guarded_send)
        except RequestError as error:
            # A handler that reads a body which is too large. Nothing was sent yet.
            await self._web.refusal(connection, error)(scope, receive, guarded_send)

    def _logs_in(self, connection: HTTPConnection) -> bool:
        is_form = connection.scope["method"] == "POST" and path_of(connection) == LOG_IN
        return is_form and self._web.pages is not None and self._web.access.tokens

    async def _log_in(self, connection: HTTPConnection, receive: Receive) -> Response:
        assert self._web.pages is not None  # noqa: S101 - checked before
        check_origin(connection)
        self._count("log in", connection)
        await self._web.open()
        limited = self._limited(connection, receive)
        return await self._web.pages.log_in(Request(connection.scope, limited), self._web)

    async def _admit(self, connection: HTTPConnection) -> RequestContext:
        address = address_of(connection)
        await self._web.open()
        identity = await self._web.authentication.identify(connection, address)
        if connection.scope["method"] not in SAFE and not bearer_token(connection):
            check_origin(connection)
        self._count(identity.name, connection)
        known = connection.cookies.get(FORM_COOKIE, "")
        return RequestContext(self._web, identity, address, known or new_form_token(), not known)

    def _count(self, name: str, connection: HTTPConnection) -> None:
        pause = self._rates.take(f"{name}\n{address_of(connection)}")
        if pause:
            detail = f"this client sends more than {self._web.limits.requests_per_second:g} requests a second"
            raise RequestError(429, "too-many-requests", detail, {"Retry-After": str(int(pause) + 1)})

    def _limited(self, connection: HTTPConnection, receive: Receive) -> Receive:
        """Return a `receive` that refuses a body which is too large."""
        is_bulk = connection.headers.get("content-type", "").partition(";")[0].strip() == NDJSON
        limit = self._web.limits.bulk_bytes if is_bulk else self._web.limits.body_bytes
        declared = connection.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > limit:
                raise _too_large(limit)
            return message

        return counted


def address_of(connection: HTTPConnection) -> str:
    """Return the network address of a client, "" if it is not known."""
    return connection.client.host if connection.client else ""


def _too_large(limit: int) -> RequestError:
    return RequestError(413, "body-too-large", f"the body of a request has at most {limit} bytes here; send less")


# A browser sends credentials of its own accord (a cookie, the network position) with requests that another site has
# made. It also says so: Sec-Fetch-Site in all current browsers, Origin in all older ones. A request with neither comes
# from a program, which sends nothing of its own accord. A bearer token is never sent of its own accord either, so
# requests with one are not checked.
def check_origin(connection: HTTPConnection) -> None:
    """Raise RequestError (403) for a change that another site lets a browser send."""
    site = connection.headers.get("sec-fetch-site")
    origin = connection.headers.get("origin")
    if site is not None:
        is_own = site == "same-origin"
    elif origin is not None:
        is_own = urlsplit(origin).netloc == connection.headers.get("host", "")
    else:
        is_own = True
    if not is_own:
        detail = "another site may not change anything here; send the request from a page of this server"
        raise RequestError(403, "foreign-origin", detail)


class _Headers:
    """Adds the security headers, and the cookie of the form token, to a response."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            self._set_form_cookie(headers)
        await self._send(message)

    def _set_form_cookie(self, headers: MutableHeaders) -> None:
        context: RequestContext | None = self._scope.get(CONTEXT)
        is_page = headers.get("content-type", "").startswith("text/html")
        if context is None or not context.is_new_form_token or not is_page:
            return
        secure = "; Secure" if self._scope.get("scheme") == "https" else ""
        cookie = f"{FORM_COOKIE}={context.form_token}; Path=/; HttpOnly; SameSite=Strict{secure}"
        headers.append("Set-Cookie", cookie)
