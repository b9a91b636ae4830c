"""A primary that Sentinel watches: its address is asked for at every new connection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from .connections import Endpoint, dial
from .library import Library, pack
from .redis import RedisStorage
from .retry import TRY_SECONDS
from .wire import ReplyError, Wire, as_list, as_text


class SentinelStorage(RedisStorage):
    """The primary of a Sentinel service; `open_storage` makes it from `redis+sentinel://` URLs."""

    def __init__(
        self,
        sentinels: Sequence[Endpoint],
        service: str,
        primary: Endpoint,
        url: str | None = None,
        library: Library | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        hosts = ",".join(one.where for one in sentinels)
        super().__init__(primary, url or f"redis+sentinel://{hosts}/{service}", library, timeout=timeout)
        self._sentinels = list(sentinels)
        self._service = service

    def clone(self) -> SentinelStorage:
        """Return a storage for the same service with connections of its own."""
        return SentinelStorage(
            self._sentinels, self._service, self._endpoint, self._url, self.library, timeout=self._timeout
        )

    async def dial(self) -> Wire:
        """Ask the sentinels in turn for the primary and connect to it, if it says itself that it is one."""
        problems: list[str] = []
        for sentinel in tuple(self._sentinels):
            try:
                host, port = await self._ask(sentinel)
                wire = await dial(self._endpoint.at(host, port))
                await self._require_primary(wire)
            except OSError as error:
                problems.append(f"{sentinel.where}: {error}")
                continue
            # The one that answered is asked first next time.
            self._sentinels.remove(sentinel)
            self._sentinels.insert(0, sentinel)
            return wire
        raise ConnectionError(f"no sentinel led to a primary of {self._service!r} ({'; '.join(problems)})")

    async def _ask(self, sentinel: Endpoint) -> tuple[str, int]:
        wire = await dial(sentinel)
        try:
            deadline = asyncio.get_running_loop().time() + TRY_SECONDS
            reply = await wire.send(pack("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service), deadline)
        finally:
            wire.drop("answered")
        address = as_list(reply)
        if address is not None and len(address) == 2:
            return as_text(address[0]), int(as_text(address[1]))
        raise ConnectionError(f"does not know the service {self._service!r} ({reply})")

    async def _require_primary(self, wire: Wire) -> None:
        reply = await wire.send(pack("ROLE"), asyncio.get_running_loop().time() + TRY_SECONDS)
        role = as_list(reply)
        if role is not None and role[0] == b"master":
            return
        wire.drop("not the primary")
        found = "a replica" if role is not None else str(reply)
        if isinstance(reply, ReplyError) and str(reply).startswith("LOADING"):
            found = "loading its data"
        raise ConnectionError(f"{wire.where} should be the primary of {self._service!r} and is {found}")

    async def mistrust(self, key: str, problem: Exception) -> bool:  # noqa: ARG002
        # A lost connection may be a failover, and then the others lead to the old primary too.
        wire = self._node.wire
        if isinstance(problem, ReplyError) or wire is None or not wire.alive:
            self._node.drop(f"looking for the primary again after: {problem}")
            self.reset_subscriptions()
        return False
