"""A storage that passes all calls to another one, records them, and lets a test intervene."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from glidemq_async.functions.calling import CallOptions, TransactionStore
from glidemq_async.functions.loader import LIBRARY
from glidemq_async.storage import Arg, Storage, StreamEntry, Subscription
from tests.support.helpers import AnyQueue

STEADY = 10
"""The number of round trips without a claim after which no worker will make another one."""


AFTER_KEY = 4
"""The position of the first argument of a function in an FCALL with one key."""


class Relay:
    """A storage that passes each call to another storage, and can call a function before or after it."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.calls: list[str] = []
        self.before_call: Callable[[str, Sequence[Arg]], Awaitable[None]] | None = None
        self.after_call: Callable[[str, Sequence[Arg], Any], Awaitable[None]] | None = None

    @property
    def url(self) -> str:
        return self._inner.url

    async def connect(self) -> None:
        await self._inner.connect()

    async def close(self) -> None:
        await self._inner.close()

    async def call(self, function: str, key: str, args: Sequence[Arg], **options: Unpack[CallOptions]) -> object:
        self.calls.append(function)
        if self.before_call is not None:
            await self.before_call(function, args)
        reply = await self._inner.call(function, key, args, **options)
        if self.after_call is not None:
            await self.after_call(function, args, reply)
        return reply

    async def transact(self, key: str, commands: Sequence[Sequence[Arg]]) -> list[object] | None:
        """Pass a transaction on, and treat each function in it like a call."""
        called = [
            (str(command[1]).removeprefix(f"{LIBRARY}_"), command[AFTER_KEY:]) if command[0] == "FCALL" else None
            for command in commands
        ]
        for function, args in filter(None, called):
            self.calls.append(function)
            if self.before_call is not None:
                await self.before_call(function, args)
        assert isinstance(self._inner, TransactionStore)
        replies = await self._inner.transact(key, commands)
        for one, reply in zip(called, replies or (), strict=replies is not None):
            if one is not None and self.after_call is not None:
                await self.after_call(*one, reply)
        return replies

    async def subscribe(
        self,
        key: str,
        channel: str,
        on_message: Callable[[bytes], None],
        on_change: Callable[[bool], None],
    ) -> Subscription:
        return await self._inner.subscribe(key, channel, on_message, on_change)

    async def quiet(self, queue: AnyQueue) -> None:
        """Wait until the workers of this storage make no more claims and have handled all messages."""
        steady = 0
        while steady < STEADY:
            before = self.calls.count("settleAndClaim")
            await queue.is_paused()
            steady = steady + 1 if self.calls.count("settleAndClaim") == before else 0

    async def read_stream(self, key: str, after: str, count: int, block: float) -> list[StreamEntry]:
        return await self._inner.read_stream(key, after, count, block)

    def scan(self, match: str) -> AsyncIterator[bytes]:
        return self._inner.scan(match)

    def clone(self) -> Storage:
        return self._inner.clone()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
