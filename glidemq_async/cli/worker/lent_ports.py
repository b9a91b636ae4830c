"""The ports of a supervised process: its supervisor listens, and asks here for the pages."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from glidemq_async._internal.http_endpoint import Page, Pages, page_of

Where: TypeAlias = "tuple[str | None, int]"
Words: TypeAlias = "dict[str, Any]"
_SHORT: Final = 16 * 1024
"""Bytes that fit into the buffer of a socket."""


class LentPorts:
    """What this process would listen on; `say` sends words to the supervisor, `hear` takes its answers."""

    def __init__(self, say: Callable[[dict[str, object]], None]) -> None:
        self._say = say
        self._pages: dict[Where, tuple[asyncio.AbstractEventLoop, Pages]] = {}
        self._opening: dict[Where, asyncio.Future[tuple[int, str] | None]] = {}

    async def open(self, host: str | None, port: int, pages: Pages) -> None:
        """Let the supervisor listen. Raises OSError when it cannot, or when this process has lent the port already."""
        where, loop = (host, port), asyncio.get_running_loop()
        if where in self._pages:
            raise OSError(errno.EALREADY, f"this process listens on {host or '*'}:{port} already")
        self._pages[where] = (loop, pages)
        self._opening[where] = answer = loop.create_future()
        try:
            self._say({"say": "open", "host": host, "port": port})
            problem = await answer
            if problem is not None:
                raise OSError(*problem)
        except BaseException:
            await self.close(host, port)
            raise
        finally:
            del self._opening[where]

    async def close(self, host: str | None, port: int) -> None:
        """Be asked for nothing more."""
        if self._pages.pop((host, port), None) is not None:
            self._say({"say": "close", "host": host, "port": port})

    def hear(self, words: Words) -> None:
        """Take what the supervisor says of a port; called in a thread of its own."""
        loop, _ = self._pages.get((words["host"], words["port"]), (None, None))
        if loop is None or loop.is_closed():
            return
        if words["do"] == "opened":
            loop.call_soon_threadsafe(self._opened, words)
        else:
            asyncio.run_coroutine_threadsafe(self._answer(words), loop)

    def _opened(self, words: Words) -> None:
        answer = self._opening.get((words["host"], words["port"]))
        if answer is not None and not answer.done():
            answer.set_result(None if words["problem"] is None else tuple(words["problem"]))

    async def _answer(self, words: Words) -> None:
        lent = self._pages.get((words["host"], words["port"]))
        page = await page_of(lent[1] if lent is not None else {}, words["path"])
        answer = {"say": "page", "id": words["id"], **to_words(page)}
        if len(page.body) < _SHORT:
            self._say(answer)
        else:  # not in the loop: it waits while the supervisor is slow to read
            await asyncio.to_thread(self._say, answer)


def to_words(page: Page) -> dict[str, object]:
    """Return a page as what travels."""
    body = page.body.decode("utf-8", "surrogateescape")
    return {"body": body, "type": page.content_type, "status": page.status}


def from_words(words: Words) -> Page:
    """Return the page of what `to_words` made."""
    return Page(words["body"].encode("utf-8", "surrogateescape"), words["type"], words["status"])
