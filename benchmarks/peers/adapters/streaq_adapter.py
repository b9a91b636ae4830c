"""streaQ."""
# pyright: basic, reportMissingImports=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Sequence

from streaq import Worker

from benchmarks.peers.harness import CONCURRENCY, payload


class StreaqAdapter:
    """One worker object for producers and the worker, with 100 slots and 100 prefetched jobs."""

    def __init__(self, url: str, note: Callable[[int], None]) -> None:
        self._worker = Worker(redis_url=url, concurrency=CONCURRENCY)

        @self._worker.task(name="handle")
        async def handle(n: int, to: str, subject: str) -> None:
            note(n)

        self._handle = handle

    async def open(self) -> None:
        await self._worker.__aenter__()

    async def add(self, number: int) -> None:
        await self._handle.enqueue(**payload(number))

    async def add_many(self, numbers: Sequence[int]) -> None:
        await self._worker.enqueue_many([self._handle.enqueue(**payload(number)) for number in numbers])

    async def work(self) -> None:
        await self._worker.run_async()


ADAPTER = StreaqAdapter
