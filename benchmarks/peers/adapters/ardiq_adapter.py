"""ArdiQ."""
# pyright: basic, reportMissingImports=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Sequence

from ardiq import Ardiq

from benchmarks.peers.harness import CONCURRENCY, payload


class ArdiqAdapter:
    """An app with 100 slots. It prefetches twice as many jobs by default."""

    def __init__(self, url: str, note: Callable[[int], None]) -> None:
        self._app = Ardiq(redis_url=url, queue_name="jobs", concurrency=CONCURRENCY)

        @self._app.task(name="handle")
        async def handle(n: int, to: str, subject: str) -> None:
            note(n)

        self._handle = handle

    async def open(self) -> None:
        """Do nothing: the app connects with its first call."""

    async def add(self, number: int) -> None:
        await self._handle.enqueue(**payload(number))

    async def add_many(self, numbers: Sequence[int]) -> None:
        await self._app.enqueue_many(self._handle.prepare(**payload(number)) for number in numbers)

    async def work(self) -> None:
        await self._app.run()


ADAPTER = ArdiqAdapter
