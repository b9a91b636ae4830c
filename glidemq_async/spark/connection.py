"""How blocking code of Spark reaches a queue: one event loop and one storage per URL and process.

Spark runs readers and writers in Python processes of its own, without an event loop, and uses each for many tasks. So a
connection is made by its first use, kept for the next task, and never handed to another process: what Spark pickles are
URLs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from glidemq_async.functions.callers import Functions
from glidemq_async.spark.retries import retry_while_unavailable
from glidemq_async.storage import Storage, open_storage
from glidemq_async.storage.embedded.memory import MemoryStorage
from glidemq_async.storage.urls import masked
from glidemq_async.stored.names import QueueKeys

T = TypeVar("T")

_LOGIN: Final = frozenset({"username", "user", "password", "passwd", "auth", "host", "port", "db", "database", "tls"})


class Connection:
    """A storage and the loop it works in; for the thread that asks, one at a time."""

    def __init__(self, url: str) -> None:
        storage = open_storage(url)
        if isinstance(storage, MemoryStorage):
            raise ValueError(  # noqa: TRY004 - a URL is a value
                f"{masked(url)!r} cannot be used from Spark: its tasks run in processes of their own, and what is in "
                "memory is seen by one process alone; use file:///directory or a server"
            )
        self.storage: Storage = storage
        self._runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)

    def run(self, work: Coroutine[Any, Any, T], *, retries: int = 0) -> T:
        """Run a coroutine to its end; its errors are raised here. Connecting is tried so many times more."""
        return self._runner.run(self._connected(work, retries))

    async def _connected(self, work: Coroutine[Any, Any, T], retries: int) -> T:
        try:
            await retry_while_unavailable(self.storage.connect, retries)
        except BaseException:
            work.close()
            raise
        return await work

    def functions(self, keys: QueueKeys) -> Functions:
        """Return callers of a queue's functions, with lanes of their own."""
        return Functions(self.storage, keys.base)

    def close(self) -> None:
        """Let go of the connections and the loop."""
        self._runner.run(self.storage.close())
        self._runner.close()


def run_alone(url: str, work: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine with a connection that is made for it and closed after it; its errors are raised here.

    In a thread of its own: the caller's may be running an event loop, as that of a notebook's cell does.
    """

    def once() -> T:
        connection = Connection(url)
        try:
            return connection.run(work(connection))
        finally:
            connection.close()

    with ThreadPoolExecutor(1, "glidemq-spark") as thread:
        return thread.submit(once).result()


_connections: Final[dict[tuple[int, str], Connection]] = {}


def connection_to(url: str) -> Connection:
    """Return this process's connection to a URL; it is made by the first who asks.

    Raises ValueError for a URL that other processes cannot reach.
    """
    mine = (os.getpid(), url)
    if mine not in _connections:
        _connections[mine] = Connection(url)
    return _connections[mine]


def belongs_in_url(option: str) -> str:
    """Return how the URL says what this option, in lower case, asks for; "" for any other one."""
    if option not in _LOGIN and not option.startswith("ssl"):
        return ""
    return (
        "the option `url` says all of the connection, as in "
        "rediss://user:password@host:6379/0?ssl_ca_certs=/etc/ca.pem (rediss is TLS; in a password write / ? # @ as "
        "%2F %3F %23 %40)"
    )
