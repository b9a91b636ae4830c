"""The servers of a storage: their nodes, the node of each store key, and the subscriptions.

A storage shows only what a user may call, and keeps everything else in one of these objects. Other modules get it from
`servers_of` in server.py.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from glidemq_async._internal import forks
from glidemq_async._internal.loops import elsewhere, refuse_elsewhere
from glidemq_async.errors import QueueClosed
from glidemq_async.storage.redis.library import Library
from glidemq_async.storage.redis.node import Node
from glidemq_async.storage.redis.subscriptions import SubscriptionHub


class Servers(ABC):
    """The servers of one storage. The subclasses decide which node serves a key."""

    def __init__(self, url: str, library: Library) -> None:
        self.url: str = url
        self.library = library
        self.home: asyncio.AbstractEventLoop | None = None
        """The event loop of the first use, also after the end."""
        self.closed = False
        self.closed_reason = f"the storage {url} is closed; open another one or use clone()"
        """The text of the error of calls after the end. The owner of the storage replaces it when it closes."""
        self.lean = False
        """True if connections are used without checks: the first call of each one is sent immediately."""
        self.hub = SubscriptionHub(self)
        forks.watch(self)

    def use_lean(self) -> None:
        """Open all connections without checks from now on. Only before the first use."""
        self.lean = True
        self.forget_nodes()

    # The nodes of the keys

    @abstractmethod
    def known_node(self, key: str) -> Node | None:
        """Return the node that serves `key`, or None if it must be looked up first. Never waits."""

    @abstractmethod
    async def find_node(self, key: str) -> Node:
        """Return the node that serves `key`, after a lookup if needed. Raises `OSError` if it cannot be found now."""

    # `problem` may be an error reply (READONLY, MOVED) or a lost connection. Many calls share one connection, so one
    # loss is reported many times. An implementation must not drop a connection that an earlier report has already
    # replaced.
    @abstractmethod
    async def recheck_node(self, key: str, problem: Exception) -> bool:
        """Handle a sign that the node of `key` is gone or has another role. Return true to retry without a pause."""

    @abstractmethod
    async def open_all(self) -> None:
        """Open every primary."""

    @abstractmethod
    async def primaries(self) -> list[Node]:
        """Return every primary, without opening it and without checking its library. Raises `OSError`."""

    @abstractmethod
    def drop_nodes(self, reason: str) -> None:
        """Drop every connection for calls. The next call opens a new one."""

    @abstractmethod
    async def close_nodes(self) -> None:
        """Close every node."""

    @abstractmethod
    def forget_nodes(self) -> object:
        """Forget all nodes, and return the former ones."""

    def route(self, key: str) -> int:  # noqa: ARG002
        """Keys of one route share a subscriber connection."""
        return 0

    async def refuse_larger(self, name: str, size: int) -> None:
        """Raise ValueError if a primary refuses arguments of `size` bytes. `name` is the option that allows them."""
        for node in await self.primaries():
            largest = node.largest_argument
            if largest is not None and size > largest:
                raise ValueError(
                    f"{name}={size} is more than {self.url} accepts in one value (proto-max-bulk-len {largest}); lower "
                    f"{name}, or raise proto-max-bulk-len on every server"
                )

    # Life

    def bind(self) -> None:
        """Tie the servers to the running loop, or refuse another one."""
        loop = asyncio.get_running_loop()
        if self.closed:
            raise QueueClosed(self.closed_reason)
        if self.home is None:
            self.home = loop
        # Sockets, futures and locks of the nodes belong to the loop of the first use. A call in another loop would wait
        # for replies that are delivered to a future of the first one.
        elif self.home is not loop:
            raise elsewhere(self.home, f"the storage {self.url}")

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop, None before the first use and after the end."""
        return None if self.closed else self.home

    async def close(self) -> None:
        """Close every connection. Idempotent. Raises RuntimeError if another running loop uses them."""
        refuse_elsewhere(self.loop, f"the storage {self.url}")
        # The flag comes first. A call whose connection ends below would otherwise connect again, see `_persist`.
        self.closed = True
        await self.hub.close()
        await self.close_nodes()

    def _after_fork(self) -> object:
        """Forget everything in a forked child, which opens its own connections; see `forks`."""
        # The parent's objects are returned and not closed. Closing or collecting them in the child would remove the
        # parent's connections from the epoll that both processes share (`_internal/forks`).
        parents = (self.home, self.hub, self.forget_nodes())
        self.home = None
        self.hub = SubscriptionHub(self)
        return parents
