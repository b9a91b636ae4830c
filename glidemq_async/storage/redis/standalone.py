"""One server, Redis or Valkey, over TCP, TLS or a unix socket."""

from __future__ import annotations

from glidemq_async.storage.redis.connections import Endpoint, dial
from glidemq_async.storage.redis.library import Library, shipped
from glidemq_async.storage.redis.node import Node
from glidemq_async.storage.redis.server import ServerStorage
from glidemq_async.storage.redis.servers import Servers
from glidemq_async.storage.redis.wire import ReplyError, Wire


class OneServer(Servers):
    """One primary, which serves every key. The subclasses find or start it in `dial`."""

    def __init__(self, endpoint: Endpoint, url: str, library: Library) -> None:
        super().__init__(url, library)
        self.endpoint = endpoint
        self._node = Node(self.dial, library)

    async def dial(self) -> Wire:
        """Open one connection to the primary."""
        return await dial(self.endpoint, lean=self.lean)

    def known_node(self, key: str) -> Node:  # noqa: ARG002
        return self._node

    async def find_node(self, key: str) -> Node:  # noqa: ARG002
        return self._node

    async def recheck_node(self, key: str, problem: Exception) -> bool:  # noqa: ARG002
        # A lost connection needs nothing here: the wire is gone already, and the next attempt opens another one to the
        # same address. False means that the caller pauses first, because a server that restarts needs some time.
        if isinstance(problem, ReplyError):
            # The server itself reports that it is not the primary. Its address may lead to another server now.
            self.leave(f"the server answered {problem}")
        return False

    def leave(self, reason: str) -> None:
        """Drop every connection. The next use of each one looks for the primary again."""
        self._node.drop(reason)
        self.hub.reset()

    async def open_all(self) -> None:
        await self._node.open()

    def forget_nodes(self) -> object:
        former, self._node = self._node, Node(self.dial, self.library, lean=self.lean)
        return former

    async def primaries(self) -> list[Node]:
        return [self._node]

    def drop_nodes(self, reason: str) -> None:
        self._node.drop(reason)

    async def close_nodes(self) -> None:
        await self._node.close()


class RedisStorage(ServerStorage):
    """A single server; `open_storage` makes it from URLs such as `redis://`, `rediss://` and `unix://`.

    `timeout`: seconds for which a call is tried before it raises StorageUnavailable (30).
    """

    def __init__(
        self,
        endpoint: Endpoint,
        url: str | None = None,
        library: Library | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._library = library or shipped()
        server = OneServer(endpoint, url or f"redis://{endpoint.where}", self._library)
        super().__init__(server, timeout=timeout, socket_timeout=endpoint.options.get("socket_timeout"))

    @property
    def endpoint(self) -> Endpoint:
        """The address and the options of its connections."""
        return self._endpoint

    def clone(self) -> RedisStorage:
        """Return a storage for the same server with separate connections."""
        return RedisStorage(self._endpoint, self.url, self._library, timeout=self._timeout)
