"""SAQ with its Redis queue."""
# pyright: basic, reportMissingImports=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable

from saq import Queue, Worker

from benchmarks.peers.harness import CONCURRENCY, payload


class SaqAdapter:
    """A queue with default options and a worker with 100 slots."""

    def __init__(self, url: str, note: Callable[[int], None]) -> None:
        self._queue = Queue.from_url(url)
        self._note = note

    async def open(self) -> None:
        await self._queue.connect()

    async def add(self, number: int) -> None:
        await self._queue.enqueue("handle", **payload(number))

    async def work(self) -> None:
        async def handle(_context: object, *, n: int, to: str, subject: str) -> None:
            self._note(n)

        await self.open()
        await Worker(self._queue, functions=[("handle", handle)], concurrency=CONCURRENCY).start()


ADAPTER = SaqAdapter
