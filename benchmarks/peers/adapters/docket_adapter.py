"""docket (the package pydocket)."""
# pyright: basic, reportMissingImports=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from docket import Docket, Worker

from benchmarks.peers.harness import CONCURRENCY, payload

CHECK = timedelta(milliseconds=10)
# With the default of redis-py, 100 connections, a worker with 100 slots ends with MaxConnectionsError.
CONNECTIONS = 1_000


class DocketAdapter:
    """A worker with 100 slots that looks for free slots and new jobs every 10 ms instead of every 250 ms."""

    def __init__(self, url: str, note: Callable[[int], None]) -> None:
        async def handle(n: int, to: str, subject: str) -> None:
            note(n)

        self._docket = Docket(name="jobs", url=f"{url}?max_connections={CONNECTIONS}")
        self._handle = handle

    async def open(self) -> None:
        await self._docket.__aenter__()
        self._docket.register(self._handle)

    async def add(self, number: int) -> None:
        await self._docket.add(self._handle)(**payload(number))

    async def add_many(self, numbers: Sequence[int]) -> None:
        await self._docket.add_many(self._docket.call(self._handle)(**payload(number)) for number in numbers)

    async def work(self) -> None:
        await self.open()
        async with Worker(self._docket, concurrency=CONCURRENCY, minimum_check_interval=CHECK) as worker:
            await worker.run_forever()


ADAPTER = DocketAdapter
