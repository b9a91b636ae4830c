"""A proxy between client and server that loses replies, becomes silent or refuses, on command."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from typing_extensions import override

from glidemq_async.storage import Endpoint, RedisStorage
from glidemq_async.storage.redis.library import Library
from tests.support.servers import Server
from tests.support.tcp_proxy import TcpProxy


class FaultProxy(TcpProxy):
    """Forwards bytes; each fault is armed by a method."""

    def __init__(self, upstream: Server) -> None:
        super().__init__()
        self._upstream = upstream
        self._marker: bytes | None = None
        self._cuts = 0
        self._silent_marker: bytes | None = None
        self.cut_count = 0
        self.forwarded: list[bytes] = []

    def cut_replies(self, marker: bytes, times: int = 1) -> None:
        """Let the next requests with this text pass, and cut the connection instead of the reply."""
        self._marker, self._cuts = marker, times

    def swallow_replies(self, marker: bytes | None) -> None:
        """Let requests with this text pass, and keep the connection open without any reply."""
        self._silent_marker = marker

    async def redirect(self, upstream: Server) -> None:
        """Cut all connections, and connect new ones to another server, as a failover does."""
        self._upstream = upstream
        await self.cut()

    @override
    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await self.open_upstream(self._upstream.port)
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


@contextlib.asynccontextmanager
async def proxied(server: Server) -> AsyncGenerator[FaultProxy]:
    """Start a proxy in front of a server."""
    async with FaultProxy(server) as proxy:
        yield proxy
