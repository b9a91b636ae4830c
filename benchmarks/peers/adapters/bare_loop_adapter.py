"""The bare loop: a stream and redis-py, without records, results or recovery."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgpack
from redis.asyncio import Redis

from benchmarks.peers.harness import CONCURRENCY, payload

STREAM = "jobs"
GROUP = "workers"
PIPELINE = 500


class BareLoopAdapter:
    """XADD, XREADGROUP, XACK and XDEL."""

    def __init__(self, url: str, note: Callable[[int], None]) -> None:
        client_class: Any = Redis
        self._client: Any = client_class.from_url(url)
        self._note = note

    async def open(self) -> None:
        if not await self._client.exists(STREAM):
            await self._client.xgroup_create(STREAM, GROUP, "0", mkstream=True)

    async def add(self, number: int) -> None:
        await self._client.xadd(STREAM, {b"d": msgpack.packb(payload(number))})

    async def add_many(self, numbers: Sequence[int]) -> None:
        for start in range(0, len(numbers), PIPELINE):
            pipeline = self._client.pipeline(transaction=False)
            for number in numbers[start : start + PIPELINE]:
                pipeline.xadd(STREAM, {b"d": msgpack.packb(payload(number))})
            await pipeline.execute()

    async def _handle(self, data: dict[str, Any]) -> None:
        self._note(data["n"])

    async def work(self) -> None:
        await self.open()
        while True:
            streams = await self._client.xreadgroup(GROUP, "one", {STREAM: ">"}, count=CONCURRENCY, block=5_000)
            if not streams:
                continue
            ids: list[bytes] = []
            for entry_id, fields in _entries(streams):
                data: Any = msgpack.unpackb(fields[b"d"])
                await self._handle(data)
                ids.append(entry_id)
            pipeline = self._client.pipeline(transaction=False)
            pipeline.xack(STREAM, GROUP, *ids)
            pipeline.xdel(STREAM, *ids)
            await pipeline.execute()


def _entries(streams: list[Any] | dict[bytes, Any]) -> list[tuple[bytes, dict[bytes, bytes]]]:
    found: list[tuple[bytes, dict[bytes, bytes]]]
    found = streams[0][1] if isinstance(streams, list) else next(iter(streams.values()))[0]
    return found


ADAPTER = BareLoopAdapter
