"""A proxy between client and server that loses replies, becomes silent or refuses, on command."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Self

from glidemq_async.storage import Endpoint, RedisStorage
from glidemq_async.storage.redis.library import Library
from tests.support.servers import Server


class FaultProxy:
    """Forwards bytes; each fault is armed by a method."""

    def __init__(self, upstream: Server) -> None:
        self._upstream = upstream
        self._marker: bytes | None = None
        self._cuts = 0
        self._silent_marker: bytes | None = None
        self.cut_count = 0
        self.connections = 0
        self.forwarded: list[bytes] = []
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def cut_replies(self, marker: bytes, times: int = 1) -> None:
        """Let the next requests with this text pass, and cut the connection instead of the reply."""
        self._marker, self._cuts = marker, times

    def swallow_replies(self, marker: bytes | None) -> None:
        """Let requests with this text pass, and keep the connection open without any reply."""
        self._silent_marker = marker

    async def redirect(self, upstream: Server) -> None:
        """Cut all connections, and connect new ones to another server, as a failover does."""
        self._upstream = upstream
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream.port)
        muted = asyncio.Event()
        back = asyncio.ensure_future(self._back(up_reader, writer, muted))
        try:
            while data := await reader.read(65536):
                self.forwarded.append(data)
                cut = self._cuts > 0 and self._marker is not None and self._marker in data
                if cut or (self._silent_marker is not None and self._silent_marker in data):
                    muted.set()
                up_writer.write(data)
                await up_writer.drain()
                if cut:
                    self._cuts -= 1
                    self.cut_count += 1
                    # The reply exists once the server has replied to a request on another connection.
                    await self._upstream.command("PING")
                    return
        except OSError:
            pass
        finally:
            back.cancel()
            for end in (writer, up_writer):
                end.transport.abort()
            await asyncio.gather(back, return_exceptions=True)

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, muted: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not muted.is_set():
                    writer.write(data)
        writer.transport.abort()

    def storage(self, library: Library) -> RedisStorage:
        """Return a storage that connects through the proxy."""
        return RedisStorage(Endpoint("127.0.0.1", self.port), library=library)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()


@contextlib.asynccontextmanager
async def proxied(server: Server) -> AsyncGenerator[FaultProxy]:
    """Start a proxy in front of a server."""
    async with FaultProxy(server) as proxy:
        yield proxy
