"""A subscriber whose messages tests can await."""

from __future__ import annotations

import asyncio

from glidemq_async.storage import Storage, Subscription


class Listener:
    """Collects messages and link changes of one channel."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[bytes] = asyncio.Queue()
        self.changes: asyncio.Queue[bool] = asyncio.Queue()
        self.subscription: Subscription | None = None

    async def subscribe(self, storage: Storage, key: str, channel: str) -> Listener:
        """Subscribe and wait until the link is up."""
        self.subscription = await storage.subscribe(key, channel, self.messages.put_nowait, self.changes.put_nowait)
        assert await self.change() is True
        return self

    async def message(self) -> bytes:
        """Return the next message."""
        return await asyncio.wait_for(self.messages.get(), 15)

    async def change(self) -> bool:
        """Return the next change of the link."""
        return await asyncio.wait_for(self.changes.get(), 15)

    async def close(self) -> None:
        """Unsubscribe."""
        assert self.subscription is not None
        await self.subscription.close()
