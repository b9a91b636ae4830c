"""A minimal HTTP/1.1 server for metrics and health probes. Coroutine functions return its pages.

It is not meant for public networks: it has no TLS, ignores request bodies, and closes the connection after one
response.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol, TypeAlias

from typing_extensions import override

from glidemq_async._internal.background import Background
from glidemq_async._internal.background_tasks import BackgroundTasks
from glidemq_async.options.validation import whole_number

__all__ = ["HttpEndpoint", "Page", "Pages", "PortError", "PortOwner", "delegate_ports_to", "page_of", "port_problem"]

_PATIENCE_SECONDS: Final = 10.0
"""Time limit for one connection, from the request to the end of the response."""
_MOST_BYTES: Final = 8_192
"""Maximum length of a request."""
_MOST_CONNECTIONS: Final = 100
"""Maximum number of open connections. Further connections are closed immediately."""

_log = logging.getLogger(__name__)


class Page(NamedTuple):
    """A response."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


Pages: TypeAlias = "Mapping[str, Callable[[], Awaitable[Page]]]"
"""Pages by path, such as "/metrics"."""


class PortOwner(Protocol):
    """A process that listens in place of this one: the supervisor of several processes."""

    async def open(self, host: str | None, port: int, pages: Pages) -> None:
        """Listen for this process too, and request its pages. Raises OSError."""
        ...

    async def close(self, host: str | None, port: int) -> None:
        """Stop listening for this process."""
        ...


_owner: PortOwner | None = None


def delegate_ports_to(owner: PortOwner | None) -> None:
    """Delegate the ports of all later endpoints of this process to another process, except port 0."""
    global _owner  # noqa: PLW0603 - ports belong to the process
    _owner = owner


class HttpEndpoint(Background):
    """Serves pages to GET and HEAD in the event loop that starts it. Other paths return 404, and errors 500.

    `host` None listens on every address. `port` 0 uses a free port, which the attribute `port` contains. `pages` may be
    a mapping that grows. Raises TypeError or ValueError for an invalid port. Starting raises OSError when the port is
    in use; the message names the port by its `purpose`, for example "metrics".
    """

    def __init__(
        self, pages: Pages, *, host: str | None = "127.0.0.1", port: int = 0, purpose: str | None = None
    ) -> None:
        self._pages = pages
        self._purpose = purpose
        self._host = host
        self._port = whole_number("port", port, least=0, most=65_535)
        self._server: asyncio.Server | None = None
        self._lent_to: PortOwner | None = None
        self._starting = asyncio.Lock()
        self._connections = BackgroundTasks()

    @property
    def port(self) -> int:
        """The port of the server; before the start, the requested port."""
        if self._server is None or not self._server.sockets:
            return self._port
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Start to listen. Idempotent. Raises OSError."""
        async with self._starting:
            if self._server is not None or self._lent_to is not None:
                return
            try:
                await self._listen()
            except OSError as error:
                if self._purpose is None:
                    raise
                raise port_problem(self._purpose, self._host, self._port, error) from error

    async def _listen(self) -> None:
        if _owner is not None and self._port:
            await _owner.open(self._host, self._port, self._pages)
            self._lent_to = _owner
        else:
            self._server = await asyncio.start_server(self._accept, self._host, self._port, limit=_MOST_BYTES)

    async def close(self) -> None:
        """Stop listening and close the open connections. Idempotent."""
        server, self._server = self._server, None
        owner, self._lent_to = self._lent_to, None
        if owner is not None:
            await owner.close(self._host, self._port)
        if server is None:
            return
        server.close()
        await self._connections.close()
        await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Clients that open connections and send nothing must not use up the descriptors of the worker.
        if len(self._connections) >= _MOST_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections.start(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(request))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.transport.abort()

    async def _answer(self, request: bytes) -> bytes:
        words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _encoded(Page(b"not HTTP/1\n", status=400), with_body=True)
        method, target, _ = words
        if method not in {"GET", "HEAD"}:
            return _encoded(Page(b"only GET and HEAD\n", status=405), with_body=True)
        return _encoded(await page_of(self._pages, target.partition("?")[0]), with_body=method == "GET")


def port_problem(purpose: str, host: str | None, port: int, error: OSError) -> PortError:
    """Return a readable error for a port that cannot be used."""
    code = error.errno or errno.EINVAL
    where = f"{purpose} port {port} ({host or 'all addresses'})"
    if code == errno.EADDRINUSE:
        why = "address already in use; choose another port, or stop the program that uses it"
    else:
        why = error.strerror or str(error)
    return PortError(code, f"the {where} cannot be used: {why}")


class PortError(OSError):
    """Raised when a port cannot be used. Its text is a sentence without the error number."""

    @override
    def __str__(self) -> str:
        return str(self.strerror)


async def page_of(pages: Pages, path: str) -> Page:
    """Return the page of a path, or an error page if there is none or if it cannot be created."""
    make = pages.get(path)
    if make is None:
        return Page(f"the pages are {', '.join(pages)}\n".encode(), status=404)
    try:
        return await make()
    except Exception:  # noqa: BLE001 - a broken page must not end the worker's port
        _log.exception("the page %s could not be created", path)
        return Page(b"the page could not be created; see the log\n", status=500)


def _encoded(page: Page, *, with_body: bool) -> bytes:
    status = HTTPStatus(page.status)
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n"
    )
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        head += "Allow: GET, HEAD\r\n"
    head += "\r\n"
    return head.encode("latin-1") + (page.body if with_body else b"")
