"""Reading calls to many queues, sent together to each of their servers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from glidemq_async.storage.protocol import Arg
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.servers import Servers
from glidemq_async.storage.redis.wire import Wire


async def read_each(
    servers: Servers, function: str, keys: Sequence[str], args: Sequence[Arg], idle_timeout: float
) -> list[object]:
    """Try once to call a function for each key; see `BatchStore.read_each`. `function` is its name on the server."""
    places: dict[Wire, list[int]] = {}
    for place, key in enumerate(keys):
        node = servers.known_node(key)
        if node is not None and node.wire is not None and not node.wire.congested:
            places.setdefault(node.wire, []).append(place)
    deadline = asyncio.get_running_loop().time() + idle_timeout
    # Everything is sent before the first reply is awaited, so that the servers of a cluster work at the same time.
    sent = [
        (
            of_wire,
            wire.send_each(
                [pack("FCALL_RO", function, 1, keys[place], *args) for place in of_wire], deadline, idle_timeout
            ),
        )
        for wire, of_wire in places.items()
    ]
    found: list[object] = [None] * len(keys)
    for of_wire, replies in sent:
        for place, reply in zip(of_wire, await replies, strict=True):
            found[place] = None if isinstance(reply, Exception) else reply
    return found
