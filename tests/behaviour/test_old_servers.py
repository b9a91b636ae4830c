"""Servers that are too old, and other programs, are refused with their version and the remedy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from glidemq_async import Queue, StorageUnavailable
from tests.support.helpers import AnyQueue, soon


class Pretender:
    """Replies like a server of some version, sufficient for the first commands."""

    def __init__(self, info: str) -> None:
        self.info = info.encode()
        self.asked: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                words = [await self._word(reader) for _ in range(int(line[1:]))]
                self.asked.append(words[0].upper())
                writer.write(self._answer(words[0].upper()))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    @staticmethod
    async def _word(reader: asyncio.StreamReader) -> bytes:
        size = int((await reader.readline())[1:])
        return (await reader.readexactly(size + 2))[:-2]

    def _answer(self, command: bytes) -> bytes:
        if command == b"INFO":
            return b"$%d\r\n%b\r\n" % (len(self.info), self.info)
        if command == b"CONFIG":
            return b"*0\r\n"
        if command in (b"FCALL", b"FCALL_RO", b"FUNCTION"):
            return b"-ERR unknown command\r\n"
        return b"+OK\r\n"


@asynccontextmanager
async def listening(pretender: Pretender) -> AsyncGenerator[str]:
    server = await asyncio.start_server(pretender.serve, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.parametrize(
    ("info", "found"),
    [
        ("redis_version:6.2.14", "Redis 6.2.14"),
        ("redis_version:7.2.4\r\nvalkey_version:7.0.1", "Valkey 7.0.1"),
        ("redis_version:5.0", "Redis 5.0"),
    ],
)
async def test_a_server_that_is_too_old_is_refused_immediately(info: str, found: str) -> None:
    pretender = Pretender(f"# Server\r\n{info}\r\n")
    async with listening(pretender) as url:
        queue: AnyQueue = Queue("q", url)
        for call in (queue.connect(), queue.add("n")):
            with pytest.raises(StorageUnavailable, match=rf"{found}.*Redis >= 7\.0 or Valkey >= 7\.2.*Upgrade"):
                await soon(call, 5)
        await queue.close()
    assert b"FCALL" not in pretender.asked
