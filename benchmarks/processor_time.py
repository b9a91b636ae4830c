"""The server's processor time for each call. Unlike its slow log, it does not grow when other programs run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Unpack
from urllib.parse import urlsplit

from typing_extensions import override

from glidemq_async.functions.calling import CallOptions
from glidemq_async.storage import Arg, Endpoint
from glidemq_async.storage.redis.standalone import RedisStorage
from glidemq_async.storage.redis.wire import Wire

from .server import main_thread_seconds


class MeasuredStorage(RedisStorage):
    """A storage of a unix socket that makes one call at a time, and notes the seconds of processor time of each."""

    def __init__(self, url: str, wire: Wire) -> None:
        super().__init__(Endpoint(path=urlsplit(url).path), url)
        self._wire = wire
        self._turn = asyncio.Lock()
        self.seconds: list[float] = []

    @override
    async def call(self, function: str, key: str, args: Sequence[Arg], **options: Unpack[CallOptions]) -> object:
        async with self._turn:
            before = await main_thread_seconds(self._wire)
            reply = await super().call(function, key, args, **options)
            self.seconds.append(await main_thread_seconds(self._wire) - before)
        return reply
