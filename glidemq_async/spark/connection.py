"""Connections of blocking Spark code to a queue: one event loop and one storage per URL and process.

Spark runs readers and writers in separate Python processes without an event loop, and reuses each process for many
tasks. The first task that needs a connection opens it, and later tasks reuse it. Objects that Spark pickles contain the
URL only, because a connection cannot move to another process.
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
    """A storage and its event loop. Only one thread may use a connection at a time."""

    def __init__(self, url: str) -> None:
        storage = open_storage(url)
        if isinstance(storage, MemoryStorage):
            raise ValueError(  # noqa: TRY004 - a URL is a value
                f"{masked(url)!r} cannot be used from Spark: its tasks run in other processes, which cannot see the "
                "memory of this one; use file:///directory or a server"
            )
        self.storage: Storage = storage
        self._runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)

    def run(self, work: Coroutine[Any, Any, T], *, retries: int = 0) -> T:
        """Run a coroutine and return its result or raise its error. Connecting is retried `retries` times."""
        return self._runner.run(self._connected(work, retries))

    async def _connected(self, work: Coroutine[Any, Any, T], retries: int) -> T:
        # Connect first, so that `work` starts with a working connection. If connecting fails, `work` has not started;
        # closing it avoids a warning about a coroutine that was never awaited.
        try:
            await retry_while_unavailable(self.storage.connect, retries)
        except BaseException:
            work.close()
            raise
        return await work

    def functions(self, keys: QueueKeys) -> Functions:
        """Return callers of a queue's functions, with new request channels."""
        return Functions(self.storage, keys.base)

    def close(self) -> None:
        """Close the connections and the event loop."""
        self._runner.run(self.storage.close())
        self._runner.close()


def run_alone(url: str, work: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine with a temporary connection, and return its result or raise its error."""
    # A new thread, because the caller's thread may run an event loop already: the cells of a notebook do.

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
    """Return this process's connection to a URL. The first call opens it.

    Raises ValueError for a URL that other processes cannot reach.
    """
    # The process id is part of the key: Spark forks its Python workers, and a fork inherits this dict, but it must not
    # use the sockets of its parent.
    mine = (os.getpid(), url)
    if mine not in _connections:
        _connections[mine] = Connection(url)
    return _connections[mine]


def belongs_in_url(option: str) -> str:
    """Return a hint if an option, in lower case, is part of the URL here; "" for any other option."""
    if option not in _LOGIN and not option.startswith("ssl"):
        return ""
    return (
        "put it into the option `url`, as in "
        "rediss://user:password@host:6379/0?ssl_ca_certs=/etc/ca.pem (rediss is TLS; in a password write / ? # @ as "
        "%2F %3F %23 %40)"
    )
