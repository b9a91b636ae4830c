"""A slow link to a server: a proxy with a limited rate and an added delay, which can also become silent."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Final

from typing_extensions import override

from tests.support.tcp_proxy import TcpProxy

PIECE: Final = 8 * 1024


class SlowLink(TcpProxy):
    """A proxy with a limited rate and an added delay.

    All connections share `rate`, in bytes per second for each direction (None: unlimited). Each byte takes `delay`
    seconds to arrive.
    """

    # Larger buffers would accept complete requests at full speed.
    BUFFER = 32 * 1024

    def __init__(self, port: int, *, rate: float | None = None, delay: float = 0.0) -> None:
        super().__init__()
        self.rate = rate
        self.delay = delay
        self._upstream = port
        self._open = asyncio.Event()
        self._open.set()
        self._free_at = {"up": 0.0, "down": 0.0}

    def silence(self) -> None:
        """Forward nothing in either direction. Connections stay open."""
        self._open.clear()

    def resume(self) -> None:
        """Forward bytes again, beginning with the delayed ones."""
        self._open.set()

    @override
    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await self.open_upstream(self._upstream)
        ways = [
            asyncio.ensure_future(self._carry(reader, up_writer, "up")),
            asyncio.ensure_future(self._carry(up_reader, writer, "down")),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Before the wait, which `cut` may cancel.
            for end in (writer, up_writer):
                end.transport.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        """Forward one direction of one connection until it ends."""
        loop = asyncio.get_running_loop()
        writer.transport.set_write_buffer_limits(high=PIECE)
        with contextlib.suppress(OSError):
            if not self.delay:
                while data := await reader.read(PIECE):
                    await self._take_turn(way, len(data))
                    writer.write(data)
                    await writer.drain()
                return
            under_way: deque[tuple[float, bytes]] = deque()
            arrival = asyncio.Event()
            delivering = asyncio.ensure_future(self._deliver(under_way, arrival, writer))
            try:
                while data := await reader.read(PIECE):
                    await self._take_turn(way, len(data))
                    under_way.append((loop.time() + self.delay, data))
                    arrival.set()
                under_way.append((loop.time() + self.delay, b""))
                arrival.set()
                await delivering
            finally:
                delivering.cancel()
                await asyncio.gather(delivering, return_exceptions=True)

    async def _deliver(
        self, under_way: deque[tuple[float, bytes]], arrival: asyncio.Event, writer: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await arrival.wait()
            arrival.clear()
            while under_way:
                at, data = under_way.popleft()
                await asyncio.sleep(max(0.0, at - loop.time()))
                await self._open.wait()
                if not data:
                    return
                writer.write(data)
                await writer.drain()

    async def _take_turn(self, way: str, size: int) -> None:
        """Wait until the link can accept these bytes."""
        await self._open.wait()
        if self.rate is None:
            return
        now = asyncio.get_running_loop().time()
        self._free_at[way] = max(self._free_at[way], now) + size / self.rate
        await asyncio.sleep(self._free_at[way] - now)
        await self._open.wait()
