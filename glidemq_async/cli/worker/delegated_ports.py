"""The ports of a supervised process. The supervisor listens on them and requests the pages from this process."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from glidemq_async._internal.http_endpoint import Page, Pages, page_of

Where: TypeAlias = "tuple[str | None, int]"
Message: TypeAlias = "dict[str, Any]"
_SHORT: Final = 16 * 1024
"""Bytes that fit into the buffer of a socket."""


class DelegatedPorts:
    """The ports that this process delegates to its supervisor.

    `say` sends a message to the supervisor, and `hear` handles a message of the supervisor.
    """

    def __init__(self, say: Callable[[dict[str, object]], None]) -> None:
        self._say = say
        self._pages: dict[Where, tuple[asyncio.AbstractEventLoop, Pages]] = {}
        self._opening: dict[Where, asyncio.Future[tuple[int, str] | None]] = {}

    async def open(self, host: str | None, port: int, pages: Pages) -> None:
        """Delegate a port to the supervisor. Raises OSError if it cannot listen, or if it has the port already."""
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
        """End the delegation of a port."""
        if self._pages.pop((host, port), None) is not None:
            self._say({"say": "close", "host": host, "port": port})

    def hear(self, message: Message) -> None:
        """Handle a message of the supervisor about a port. Called in a separate thread."""
        # In the thread that reads the socket. The futures and pages belong to the event loop, so this uses only
        # thread-safe methods of the loop, such as `call_soon_threadsafe`.
        loop, _ = self._pages.get((message["host"], message["port"]), (None, None))
        if loop is None or loop.is_closed():
            return
        if message["do"] == "opened":
            loop.call_soon_threadsafe(self._opened, message)
        else:
            asyncio.run_coroutine_threadsafe(self._answer(message), loop)

    def _opened(self, message: Message) -> None:
        answer = self._opening.get((message["host"], message["port"]))
        if answer is not None and not answer.done():
            answer.set_result(None if message["problem"] is None else tuple(message["problem"]))

    async def _answer(self, message: Message) -> None:
        delegated = self._pages.get((message["host"], message["port"]))
        page = await page_of(delegated[1] if delegated is not None else {}, message["path"])
        answer = {"say": "page", "id": message["id"], **message_of_page(page)}
        if len(page.body) < _SHORT:
            self._say(answer)
        else:  # outside of the loop, because it blocks while the supervisor is slow to read
            await asyncio.to_thread(self._say, answer)


def message_of_page(page: Page) -> dict[str, object]:
    """Return the message form of a page."""
    body = page.body.decode("utf-8", "surrogateescape")
    return {"body": body, "type": page.content_type, "status": page.status}


def page_from_message(message: Message) -> Page:
    """Return the page that `message_of_page` encoded."""
    return Page(message["body"].encode("utf-8", "surrogateescape"), message["type"], message["status"])
