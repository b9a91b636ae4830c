"""A TCP proxy on a loopback port: the base of the proxies that are slow or lose replies."""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from typing import ClassVar, Self


class TcpProxy(ABC):
    """Accepts connections while it is open. Subclasses forward the bytes of each connection."""

    BUFFER: ClassVar[int | None] = None
    """The buffer size of the sockets and streams; None: the default sizes."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.connected = asyncio.Event()
        """Set by the first connection."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Return the address of the server behind the proxy."""
        return f"redis://127.0.0.1:{self.port}"

    @abstractmethod
    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward the bytes of one connection until it ends."""

    async def open_upstream(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the server on this port."""
        there = self._socket()
        there.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(there, ("127.0.0.1", port))
            return await asyncio.open_connection(sock=there, limit=self.BUFFER or 65536)
        except BaseException:
            there.close()
            raise

    async def cut(self) -> None:
        """Cut all connections, and wait until they have ended."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        listening = self._socket()
        listening.bind(("127.0.0.1", 0))
        self._server = await asyncio.start_server(self._serve, sock=listening, limit=self.BUFFER or 65536)
        self.port = listening.getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        await self.cut()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        self.connected.set()
        try:
            await self.forward(reader, writer)
        finally:
            writer.transport.abort()

    def _socket(self) -> socket.socket:
        made = socket.socket()
        if self.BUFFER is not None:
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                made.setsockopt(socket.SOL_SOCKET, option, self.BUFFER)
        return made
