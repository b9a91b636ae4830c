"""taskiq with the stream broker of taskiq-redis."""
# pyright: basic, reportMissingImports=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from benchmarks.peers.harness import CONCURRENCY, payload


class TaskiqAdapter:
    """The broker reads 100 entries in a call and prefetches 100 jobs. It has no result backend."""

    def __init__(self, url: str, note: Callable[[int], None]) -> None:
        # By default the broker creates its group at the end of the stream, which hides jobs that were added earlier.
        self._broker = RedisStreamBroker(url, consumer_id="0", xread_count=CONCURRENCY)

        @self._broker.task(task_name="handle")
        async def handle(n: int, to: str, subject: str) -> None:
            note(n)

        self._handle = handle

    async def open(self) -> None:
        await self._broker.startup()

    async def add(self, number: int) -> None:
        await self._handle.kiq(**payload(number))

    async def work(self) -> None:
        await run_receiver_task(self._broker, max_async_tasks=CONCURRENCY, max_prefetch=CONCURRENCY, run_startup=True)


ADAPTER = TaskiqAdapter
