"""One server, Redis or Valkey, over TCP, TLS or a unix socket."""

from __future__ import annotations

from glidemq_async.storage.redis.connections import Endpoint, dial
from glidemq_async.storage.redis.library import Library
from glidemq_async.storage.redis.node import Node
from glidemq_async.storage.redis.server import ServerStorage
from glidemq_async.storage.redis.wire import ReplyError, Wire


class RedisStorage(ServerStorage):
    """A single server; `open_storage` makes it from `redis://`, `rediss://`, `unix://` URLs and their kin.

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
        super().__init__(url or f"redis://{endpoint.where}", library, timeout)
        self._endpoint = endpoint
        self._try_seconds = endpoint.options.get("socket_timeout")
        self._node = Node(self.dial, self.library)

    @property
    def endpoint(self) -> Endpoint:
        """Where and how it connects."""
        return self._endpoint

    def clone(self) -> RedisStorage:
        """Return a storage for the same server with separate connections."""
        return RedisStorage(self._endpoint, self._url, self.library, timeout=self._timeout)

    async def dial(self) -> Wire:
        """Open one connection to the primary."""
        return await dial(self._endpoint)

    def known_node(self, key: str) -> Node:  # noqa: ARG002
        return self._node

    async def find_node(self, key: str) -> Node:  # noqa: ARG002
        return self._node

    async def recheck_node(self, key: str, problem: Exception) -> bool:  # noqa: ARG002
        # A lost connection needs nothing here: the wire is gone already, and the next attempt opens another one to the
        # same address. False means that the caller pauses first, because a server that restarts needs some time.
        if isinstance(problem, ReplyError):
            # The server itself reports that it is not the primary. Its address may lead to another server now.
            self._node.drop(f"the server answered {problem}")
            self.reset_subscriptions()
        return False

    async def open_all(self) -> None:
        await self._node.open()

    def forget_nodes(self) -> object:
        former, self._node = self._node, Node(self.dial, self.library)
        return former

    async def primaries(self) -> list[Node]:
        return [self._node]

    async def close_nodes(self) -> None:
        await self._node.close()
