"""A memory storage whose subclasses intervene after calls, before messages, and around subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Unpack

from glidemq_async.functions.calling import CallOptions
from glidemq_async.storage import MemoryStorage
from glidemq_async.storage.protocol import Arg, Subscription


class HookedStorage(MemoryStorage):
    """A memory storage with hooks that do nothing. A subclass overrides the hooks that it needs."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.linked = asyncio.Event()
        """Set when the subscription of a worker is confirmed."""

    async def after_call(self, function: str, reply: object) -> None:
        """Run before the caller gets the reply."""

    async def before_subscribe(self, channel: str) -> None:
        """Run before a subscription begins."""

    def deliver(self, message: bytes, on_message: Callable[[bytes], None]) -> None:
        """Pass a message to its subscriber."""
        on_message(message)

    async def call(self, function: str, key: str, args: Sequence[Arg], **options: Unpack[CallOptions]) -> object:
        reply = await super().call(function, key, args, **options)
        await self.after_call(function, reply)
        return reply

    async def transact(self, key: str, commands: Sequence[Sequence[Arg]]) -> list[object] | None:
        """Refuse transactions, so that the hooks see each call of a function."""
        return None

    async def subscribe(
        self, key: str, channel: str, on_message: Callable[[bytes], None], on_change: Callable[[bool], None]
    ) -> Subscription:
        def change(up: bool) -> None:
            on_change(up)
            if up and ":wake:" in channel:
                self.linked.set()

        await self.before_subscribe(channel)
        return await super().subscribe(key, channel, lambda message: self.deliver(message, on_message), change)
