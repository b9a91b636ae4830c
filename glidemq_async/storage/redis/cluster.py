"""A cluster: the map from slots to primaries, and its changes."""

from __future__ import annotations

import asyncio
import logging
from binascii import crc_hqx
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from glidemq_async._internal.waits import together
from glidemq_async.storage.redis.attempt import SharedAttempt
from glidemq_async.storage.redis.connections import Endpoint, dial
from glidemq_async.storage.redis.library import Library, pack, shipped
from glidemq_async.storage.redis.node import Node
from glidemq_async.storage.redis.retry import TRY_SECONDS
from glidemq_async.storage.redis.server import ServerStorage
from glidemq_async.storage.redis.servers import Servers
from glidemq_async.storage.redis.wire import Reply, Wire, as_list, as_text

Address: TypeAlias = tuple[str, int]
Remap: TypeAlias = Callable[[str, int], Address]
"""Returns the address at which a node can be reached for the address that the cluster announces."""

SLOTS: Final = 16384
log: Final = logging.getLogger("glidemq_async.storage")


@lru_cache(maxsize=4096)
def slot_of(key: str) -> int:
    """The slot of a key or of a pattern with a hash tag."""
    name = key.encode()
    # As the specification of the Cluster defines it: an empty tag does not count, and only the first opening brace
    # does. `crc_hqx` with an initial value of 0 is the CRC16 of the Cluster.
    start = name.find(b"{")
    end = name.find(b"}", start + 1)
    if start >= 0 and end > start + 1:
        name = name[start + 1 : end]
    return crc_hqx(name, 0) % SLOTS


class ClusterServers(Servers):
    """The primaries of a cluster, and the cluster slots that they serve."""

    def __init__(
        self, seeds: Sequence[Address], base: Endpoint, url: str, library: Library, remap: Remap | None
    ) -> None:
        super().__init__(url, library)
        self._seeds = list(seeds)
        self._base = base
        self._remap = remap
        self._nodes: dict[Address, Node] = {}
        self._owners: list[Address | None] = [None] * SLOTS
        self._known: list[Address] = []
        self._refreshing = self._refresher()

    def route(self, key: str) -> int:
        return slot_of(key)

    def known_node(self, key: str) -> Node | None:
        owner = self._owners[slot_of(key)]
        return None if owner is None else self._nodes.get(owner)

    async def find_node(self, key: str) -> Node:
        slot = slot_of(key)
        if self._owners[slot] is None:
            await self._refreshing.outcome()
        owner = self._owners[slot]
        if owner is None:
            # An OSError, so the call is sent again: the cluster slots of a dead primary have no owner until its replica
            # takes over.
            raise ConnectionError(f"no node of {self.url} serves slot {slot}")
        return self._node(owner)

    def _node(self, address: Address) -> Node:
        node = self._nodes.get(address)
        if node is None:
            endpoint = self._base.at(*address)

            async def dial_here() -> Wire:
                return await dial(endpoint, lean=self.lean)

            node = self._nodes[address] = Node(dial_here, self.library, lean=self.lean)
        return node

    async def open_all(self) -> None:
        await together(node.open() for node in await self.primaries())

    async def primaries(self) -> list[Node]:
        await self._refreshing.outcome()
        owners = sorted({owner for owner in self._owners if owner is not None})
        if not owners:
            raise ConnectionError(f"no node of {self.url} serves any slot")
        return [self._node(owner) for owner in owners]

    async def recheck_node(self, key: str, problem: Exception) -> bool:
        # Two kinds of signs lead here, and they need different reactions:
        #
        # - MOVED names the new owner. The one cluster slot is corrected immediately, so this call is sent again
        #   immediately. The full map is read in the background, because a failover moves all slots
        #   of a node, and each queue would otherwise pay for its own redirection.
        # - Any other sign (a lost connection, LOADING, CLUSTERDOWN) names no owner. The map is read before the next
        #   attempt. The call is repeated without a pause only if the slot has another owner now. Otherwise it would
        #   hammer the same dead node until the failover is over.
        #
        # An error reply leaves the connection open although its node is useless, so the node's connections are dropped.
        # A lost connection needs no drop. Dropping it anyway could end the new connection that another caller has
        # opened by now.
        #
        # ASK is not followed (see `retry`): during the migration of a slot each node has a part of the queue's store
        # keys, and a function needs all of them.
        text = str(problem)
        if text.startswith("MOVED "):
            return self._moved(text)
        slot = slot_of(key) if key else None
        owner = None if slot is None else self._owners[slot]
        if owner is not None and not isinstance(problem, OSError) and owner in self._nodes:
            self._nodes[owner].drop(f"it answered {text}")
        await self._refreshing.outcome()
        return slot is not None and owner is not None and self._owners[slot] not in (owner, None)

    def _moved(self, text: str) -> bool:
        _, number, owner = text.split(" ")[:3]
        host, _, port = owner.rpartition(":")
        slot = int(number)
        former = self._owners[slot]
        address = self._reachable(host, int(port)) if host else ((former or self._seeds[0])[0], int(port))
        self._owners[slot] = address
        self._refreshing.start()
        return address != former

    def _reachable(self, host: str, port: int) -> Address:
        return (host, port) if self._remap is None else self._remap(host, port)

    # Topology

    def _refresher(self) -> SharedAttempt[None]:
        return SharedAttempt(self._load_topology, "read the topology of the cluster")

    async def _load_topology(self) -> None:
        problems: list[str] = []
        for address in self._sources():
            try:
                slots = await self._ask(address)
            except OSError as error:
                problems.append(f"{address[0]}:{address[1]}: {error}")
                continue
            if slots:
                self._adopt(slots, address)
                return
            problems.append(f"{address[0]}:{address[1]} knows no slots")
        raise ConnectionError(f"no node of {self.url} reports the topology ({'; '.join(problems)})")

    def _sources(self) -> list[Address]:
        """Return the nodes to ask. Nodes with a living connection come first, because a dead host costs seconds."""
        known = dict.fromkeys([*self._known, *self._seeds])
        wires = {address: node.wire for address, node in self._nodes.items()}
        return sorted(known, key=lambda address: (wire := wires.get(address)) is None or not wire.alive)

    async def _ask(self, address: Address) -> list[Reply]:
        node = self._nodes.get(address)
        deadline = asyncio.get_running_loop().time() + TRY_SECONDS
        if node is not None and node.wire is not None and node.wire.alive:
            reply = await node.wire.send(pack("CLUSTER", "SLOTS"), deadline)
        else:
            wire = await dial(self._base.at(*address))
            try:
                reply = await wire.send(pack("CLUSTER", "SLOTS"), deadline)
            finally:
                wire.drop("topology read")
        slots = as_list(reply)
        if slots is not None:
            return slots
        raise ConnectionError(str(reply))

    def _read_slots(self, slots: list[Reply], asked: Address) -> tuple[list[Address | None], list[Address]]:
        """Return the owner of each cluster slot, and the addresses of all nodes."""
        owners: list[Address | None] = [None] * SLOTS
        known: list[Address] = []
        for part in slots:
            first, last, *nodes = as_list(part) or []
            if not isinstance(first, int) or not isinstance(last, int) or not nodes:
                raise ConnectionError(f"{asked[0]}:{asked[1]} answered CLUSTER SLOTS with {part!r}")
            addresses = [self._reachable(*_address(node, asked)) for node in nodes]
            owners[first : last + 1] = [addresses[0]] * (last - first + 1)
            known += addresses
        return owners, known

    def _adopt(self, slots: list[Reply], asked: Address) -> None:
        owners, known = self._read_slots(slots, asked)
        before, now = ({owner for owner in set(found) if owner is not None} for found in (self._owners, owners))
        # Only subscriptions whose slot has another owner reconnect. The others would lose the messages of that time for
        # nothing.
        pairs = zip(self._owners, owners, strict=True) if before else ()
        changed = {slot for slot, (old, new) in enumerate(pairs) if old is not None and old != new}
        self._owners = owners
        self._known = list(dict.fromkeys(known))
        for gone in before - now:
            node = self._nodes.pop(gone, None)
            if node is not None:
                node.retire("it serves no slots any more")
        if changed:
            self.hub.reset(changed)

    def forget_nodes(self) -> object:
        former = (self._nodes, self._refreshing)
        self._nodes, self._refreshing = {}, self._refresher()
        return former

    def drop_nodes(self, reason: str) -> None:
        for node in self._nodes.values():
            node.drop(reason)

    async def close_nodes(self) -> None:
        await self._refreshing.close()
        for node in tuple(self._nodes.values()):
            await node.close()


class ClusterStorage(ServerStorage):
    """A Redis or Valkey Cluster; `open_storage` makes it from `redis+cluster://` URLs.

    While a slot moves key by key, calls wait, because each node holds only a part of the queue.
    """

    def __init__(
        self,
        seeds: Sequence[Address],
        base: Endpoint,
        url: str | None = None,
        library: Library | None = None,
        *,
        timeout: float | None = None,
        remap: Remap | None = None,
    ) -> None:
        shown = url or f"redis+cluster://{','.join(f'{host}:{port}' for host, port in seeds)}"
        self._settings = tuple(seeds), base, shown, library or shipped(), remap
        super().__init__(
            ClusterServers(*self._settings), timeout=timeout, socket_timeout=base.options.get("socket_timeout")
        )

    def clone(self) -> ClusterStorage:
        """Return a storage for the same cluster with separate connections."""
        seeds, base, url, library, remap = self._settings
        return ClusterStorage(seeds, base, url, library, timeout=self._timeout, remap=remap)


def _address(node: Reply, asked: Address) -> Address:
    parts = as_list(node) or [b"", asked[1]]
    host = as_text(parts[0] or b"")
    # A node that does not know its own address leaves it empty. Then the address is the one that was asked.
    return (asked[0] if host in ("", "?") else host, int(as_text(parts[1])))
