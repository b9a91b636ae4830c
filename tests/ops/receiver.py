"""A receiver of webhooks for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.helpers import soon


@dataclass(frozen=True, slots=True)
class Received:
    """A request that was received."""

    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The content."""
        return json.loads(self.body)


class Receiver:
    """Accepts requests, and replies with the statuses in `replies`, then with 204."""

    def __init__(self) -> None:
        self.url = ""
        self.replies: list[int] = []
        self._received: asyncio.Queue[Received] = asyncio.Queue()

    async def next(self) -> Received:
        """Wait for the next request."""
        return await soon(self._received.get())

    @property
    def count(self) -> int:
        """Return the number of requests that were not read yet."""
        return self._received.qsize()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection with one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        rows = (line.partition(": ") for line in head.splitlines()[1:] if line)
        headers = {name.lower(): value for name, _, value in rows}
        body = await reader.readexactly(int(headers["content-length"]))
        self._received.put_nowait(Received(headers, body))
        status = self.replies.pop(0) if self.replies else 204
        redirect = f"location: {self.url}/elsewhere\r\n" if status == 302 else ""
        writer.write(f"HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n{redirect}\r\n".encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def receiving() -> AsyncGenerator[Receiver]:
    """Provide a receiver on this machine."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    async with server:
        receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hooks/secret-path"
        yield receiver
