"""A proxy that cuts connections at one kind of call (before its arrival, after its run, or inside its reply) or at a
push.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Final, Literal, TypeAlias

Cut: TypeAlias = Literal["before", "after", "inside"]
CUTS: Final[tuple[Cut, ...]] = ("before", "after", "inside")
PUSH: Final = b"\r\nj"
"""The beginning of the push of one plain job: its length, and its first byte."""


class CuttingProxy:
    """Forwards bytes between unix sockets. `arm` makes it cut at the next request that contains a text."""

    def __init__(self, upstream: str, path: str, draw: random.Random) -> None:
        self.path = path
        self.made: Counter[Cut] = Counter()
        self._upstream = upstream
        self._random = draw
        self._marker = b""
        self._next: list[Cut] = []
        self._idle = asyncio.Event()
        self._pushes = 0
        self.lost_pushes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def arm(self, marker: bytes, *cuts: Cut) -> None:
        """Cut at the next requests that contain this text, in this order."""
        self._marker, self._next = marker, list(cuts)
        self._idle.clear()

    def lose_push(self) -> None:
        """Cut the connection at the next push, before it or inside it."""
        self._pushes = 1

    async def all_made(self) -> None:
        """Wait until every armed cut has been made."""
        await self._idle.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(self._upstream)
        except BaseException:
            writer.transport.abort()
            raise
        try:
            cut = await self._forward_until_cut(reader, up_writer, up_reader, writer)
            if cut is not None:
                self.made[cut] += 1
                if not self._next:
                    self._idle.set()
        except OSError:
            pass
        finally:
            for end in (writer, up_writer):
                end.transport.abort()

    async def _forward_until_cut(
        self,
        reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> Cut | None:
        back = asyncio.create_task(self._copy(up_reader, writer))
        try:
            while data := await reader.read(1 << 20):
                if not (self._next and self._marker in data):
                    up_writer.write(data)
                    await up_writer.drain()
                    continue
                cut = self._next.pop(0)
                if cut != "before":
                    back.cancel()
                    await asyncio.wait([back])
                    up_writer.write(data)
                    reply = await up_reader.read(1 << 20)
                    if cut == "inside":
                        writer.write(reply[: self._random.randint(1, max(1, len(reply) - 1))])
                        await writer.drain()
                        writer.write_eof()
                        await asyncio.sleep(0.002)
                return cut
            return None
        finally:
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 20):
                at = data.find(PUSH)
                if self._pushes and at >= 0:
                    self._pushes -= 1
                    self.lost_pushes += 1
                    writer.write(data[: self._random.choice((0, at, at + len(PUSH)))])
                    await writer.drain()
                    break
                writer.write(data)
                await writer.drain()
        # The server closed the connection, so the proxy closes it for the client.
        writer.transport.abort()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[CuttingProxy]:
        """Serve while the block runs."""
        server = await asyncio.start_unix_server(self._serve, self.path)
        try:
            yield self
        finally:
            server.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()
