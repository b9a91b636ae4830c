"""The ports of a supervised process. The supervisor listens on them and requests the pages from this process."""

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
    """The ports that this process lends. `say` sends messages to the supervisor, and `hear` receives its messages."""

    def __init__(self, say: Callable[[dict[str, object]], None]) -> None:
        self._say = say
        self._pages: dict[Where, tuple[asyncio.AbstractEventLoop, Pages]] = {}
        self._opening: dict[Where, asyncio.Future[tuple[int, str] | None]] = {}

    async def open(self, host: str | None, port: int, pages: Pages) -> None:
        """Lend a port to the supervisor. Raises OSError if it cannot listen, or if the port is already lent."""
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
        """Take the port back."""
        if self._pages.pop((host, port), None) is not None:
            self._say({"say": "close", "host": host, "port": port})

    def hear(self, words: Words) -> None:
        """Handle a message of the supervisor about a port. Called in a separate thread."""
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
        else:  # outside of the loop, because it blocks while the supervisor is slow to read
            await asyncio.to_thread(self._say, answer)


def to_words(page: Page) -> dict[str, object]:
    """Return the message form of a page."""
    body = page.body.decode("utf-8", "surrogateescape")
    return {"body": body, "type": page.content_type, "status": page.status}


def from_words(words: Words) -> Page:
    """Return the page that `to_words` encoded."""
    return Page(words["body"].encode("utf-8", "surrogateescape"), words["type"], words["status"])
