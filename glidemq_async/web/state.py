"""The state of one operations app, which all of its requests share."""

from __future__ import annotations

import asyncio

from glidemq_async.ops.core import Ops
from glidemq_async.ops.tokens import Tokens
from glidemq_async.web.authentication import Authentication
from glidemq_async.web.settings import Access, WebLimits


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

    async def close(self) -> None:
        """Close the connections. The next request opens them again."""
        if self._is_open:
            self._is_open = False
            await self.ops.close()
