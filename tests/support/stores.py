"""The stores on which conformance tests run. Each is started once per test process, when a test first needs it.

servers.py starts the servers. leak_check.py checks what a test leaves behind.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import cast

from glidemq_async.storage import Endpoint, FileStorage, MemoryStorage
from glidemq_async.storage.embedded.file import socket_path
from glidemq_async.storage.redis.connections import dial
from glidemq_async.storage.redis.library import pack
from tests.support import servers
from tests.support.servers import Server

ON_TWO = ("memory", "redis7")
EVERYWHERE = ("memory", "redis7", "redis", "unix", "file", "cluster", "sentinel")
CLOCKED = "clocked"
"""The name of the embedded server whose clock the tests move."""


@dataclass(frozen=True)
class RunningStore:
    """A store that runs: its URL for the code under test, and its primaries for the test itself."""

    name: str
    url: str
    primaries: tuple[Endpoint, ...]

    async def command(self, *words: str | bytes | int) -> list[object]:
        """Run a command on every primary; return one reply each."""
        return [await _command(endpoint, *words) for endpoint in self.primaries]

    async def lifetimes(self, keys: Sequence[str]) -> dict[str, int]:
        """Return the milliseconds that each key has left, -1 for a permanent one."""
        found: dict[str, int] = {}
        for endpoint in self.primaries:
            replies = await _commands(endpoint, [("PTTL", key) for key in keys])
            found |= {key: reply for key, reply in zip(keys, replies, strict=True) if isinstance(reply, int)}
        return found

    async def ask(self, *words: str | bytes | int) -> object:
        """Run a command about a key on the primary that serves it."""
        for reply in await self.command(*words):
            if not (isinstance(reply, Exception) and str(reply).startswith("MOVED")):
                if isinstance(reply, Exception):
                    raise reply
                return reply
        raise LookupError(f"no primary serves {words!r}")

    async def keys(self) -> list[str]:
        """Return every store key."""
        found: list[str] = []
        for reply in await self.command("KEYS", "*"):
            assert isinstance(reply, list), reply
            found += [key.decode() for key in cast("list[bytes]", reply)]
        return found


async def _command(endpoint: Endpoint, *words: str | bytes | int) -> object:
    return (await _commands(endpoint, [words]))[0]


async def _commands(endpoint: Endpoint, commands: Sequence[tuple[str | bytes | int, ...]]) -> list[object]:
    wire = await dial(servers.patient(endpoint))
    try:
        deadline = asyncio.get_running_loop().time() + servers.REPLY_SECONDS
        return list(await asyncio.gather(*[wire.send(pack(*words), deadline) for words in commands]))
    finally:
        wire.drop("answered")
        await asyncio.sleep(0)


def endpoint_of(server: Server) -> Endpoint:
    """Return the address of a server."""
    return Endpoint(path=server.path) if server.path else Endpoint("127.0.0.1", server.port)


@asynccontextmanager
async def _memory() -> AsyncGenerator[RunningStore]:
    # This storage stays open, because the server ends with the last storage of its name.
    async with MemoryStorage("conformance") as holder:
        yield RunningStore("memory", holder.url, (Endpoint(path=holder.socket),))


@asynccontextmanager
async def _clocked() -> AsyncGenerator[RunningStore]:
    async with MemoryStorage(CLOCKED, testing=True) as holder:
        yield RunningStore(CLOCKED, holder.url, (Endpoint(path=holder.socket),))


@asynccontextmanager
async def _file() -> AsyncGenerator[RunningStore]:
    with tempfile.TemporaryDirectory(prefix="gmq-") as directory:
        async with FileStorage(directory, linger=0.2) as holder:
            yield RunningStore("file", f"{holder.url}?linger=0.2", (Endpoint(path=socket_path(directory)),))


@asynccontextmanager
async def _redis() -> AsyncGenerator[RunningStore]:
    async with servers.standalone("--appendonly", "yes") as server:
        yield RunningStore("redis", server.url, (endpoint_of(server),))


@asynccontextmanager
async def _unix() -> AsyncGenerator[RunningStore]:
    async with servers.standalone(unix=True) as server:
        yield RunningStore("unix", server.url, (endpoint_of(server),))


@asynccontextmanager
async def _redis7() -> AsyncGenerator[RunningStore]:
    async with servers.redis7() as server:
        yield RunningStore("redis7", server.url, (endpoint_of(server),))


@asynccontextmanager
async def _cluster() -> AsyncGenerator[RunningStore]:
    # No server dies here: a busy machine must not look like a dead node.
    async with servers.cluster(timeout_ms=15_000) as made:
        yield RunningStore("cluster", made.url, tuple(map(endpoint_of, made.primaries)))


@asynccontextmanager
async def _sentinel() -> AsyncGenerator[RunningStore]:
    async with servers.sentinel(down_ms=15_000) as made:
        yield RunningStore("sentinel", made.url, (endpoint_of(made.primary),))


_OPENERS: dict[str, Callable[[], AbstractAsyncContextManager[RunningStore]]] = {
    "memory": _memory,
    CLOCKED: _clocked,
    "redis7": _redis7,
    "redis": _redis,
    "unix": _unix,
    "file": _file,
    "cluster": _cluster,
    "sentinel": _sentinel,
}


class RunningStores:
    """All stores of one test process, on a separate event loop that runs only here."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._stack = AsyncExitStack()
        self._started: dict[str, RunningStore] = {}

    def get(self, name: str) -> RunningStore:
        """Return the store of this name, and start it if necessary."""
        store = self._started.get(name)
        if store is None:
            store = self._started[name] = self._runner.run(self._start(name))
        return store

    def clear(self, name: str) -> None:
        """Delete all data of a store that has been started."""
        self._runner.run(self._started[name].command("FLUSHALL"))

    async def _start(self, name: str) -> RunningStore:
        opening = _OPENERS[name]
        return await self._stack.enter_async_context(opening())

    def close(self) -> None:
        """End every server."""
        self._runner.run(self._stack.aclose())
        self._runner.close()
