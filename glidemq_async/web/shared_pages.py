"""Pages that several browsers refresh: rendered once for all users with the same rights."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

MOST_PAGES: Final = 200


class SharedPages:
    """The pages that were rendered lately, by the request and the rights of its user."""

    def __init__(self) -> None:
        self._pages: dict[Hashable, tuple[float, asyncio.Lock, bytes]] = {}

    async def get(self, key: Hashable, kept: float, make: Callable[[], Awaitable[bytes | None]]) -> bytes | None:
        """Return the page of a key, or make it and keep it for `kept` seconds.

        None and raised errors are not kept.
        """
        _, lock, _ = self._pages.setdefault(key, (0.0, asyncio.Lock(), b""))
        async with lock:
            until, _, page = self._pages.get(key, (0.0, lock, b""))
            if time.monotonic() < until:
                return page
            made = await make()
            if made is not None:
                self._pages[key] = time.monotonic() + kept, lock, made
                self._forget()
            return made

    def _forget(self) -> None:
        if len(self._pages) > MOST_PAGES:
            now = time.monotonic()
            self._pages = {key: page for key, page in self._pages.items() if page[0] > now}
