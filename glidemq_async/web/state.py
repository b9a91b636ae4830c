"""The state of one operations app, which all of its requests share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from glidemq_async.ops.core import Ops
from glidemq_async.ops.tokens import Tokens
from glidemq_async.web.authentication import Authentication
from glidemq_async.web.browsers import wants_page
from glidemq_async.web.problems import Problem, described
from glidemq_async.web.settings import Access, WebLimits
from glidemq_async.web.shared_pages import SharedPages

FASTEST_PACE: Final = 2.0
REFRESHES_PER_SECOND: Final = 8.0
"""Number of refreshes of all open pages together in a second."""
ErrorPage: TypeAlias = Callable[[HTTPConnection, Problem, Access], Response]
LogIn: TypeAlias = Callable[[Request, "WebState"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class GatePages:
    """The pages that the gate shows to browsers, if the pages are installed."""

    error: ErrorPage
    log_in: LogIn


class WebState:
    """The state of one operations app: its core, its settings, and the parts that requests share."""

    def __init__(self, ops: Ops, access: Access, limits: WebLimits, *, read_only: bool) -> None:
        self.ops = ops
        self.access = access
        self.limits = limits
        self.read_only = read_only
        self.tokens = Tokens(ops)
        self.authentication = Authentication(access, self.tokens)
        self.streams = 0
        """The number of open event streams."""
        self.ending = asyncio.Event()
        """Set when the open event streams have to end."""
        self.shared_pages = SharedPages()
        self.pages: GatePages | None = None
        self._is_open = False
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Connect. Idempotent. Raises StorageUnavailable."""
        # A mounted app gets no lifespan events, so the first request opens it.
        if self._is_open:
            return
        async with self._opening:
            if not self._is_open:
                await self.ops.__aenter__()
                self._is_open = True

    @property
    def pace(self) -> float:
        """The seconds between two requests of an open page for its new state. It grows with the number of pages."""
        return max(FASTEST_PACE, self.streams / REFRESHES_PER_SECOND)

    def refusal(self, connection: HTTPConnection, error: Exception) -> Response:
        """Return the response for an error: a page for a browser, otherwise a problem document."""
        found = described(error)
        if self.pages is None or not wants_page(connection):
            return found.response()
        return self.pages.error(connection, found, self.access)

    def end_streams(self) -> None:
        """End the open event streams, because the server stops."""
        self.ending.set()

    async def close(self) -> None:
        """Close the connections. The next request opens them again."""
        if self._is_open:
            self._is_open = False
            await self.ops.close()
