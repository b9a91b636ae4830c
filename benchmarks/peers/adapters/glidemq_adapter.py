"""This library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.peers.harness import CONCURRENCY, payload
from glidemq_async import Job, Queue, Worker

QUEUE = "jobs"


class GlideMQAdapter:
    """A queue and a worker with default options."""

    def __init__(self, url: str, note: Callable[[int], None]) -> None:
        self._url, self._note = url, note
        self._queue: Queue[dict[str, Any], None] = Queue(QUEUE, url)

    async def open(self) -> None:
        await self._queue.connect()

    async def add(self, number: int) -> None:
        await self._queue.add("handle", payload(number))

    async def add_many(self, numbers: Sequence[int]) -> None:
        await self._queue.add_bulk([("handle", payload(number)) for number in numbers])

    async def _handle(self, job: Job[dict[str, Any], None]) -> None:
        self._note(job.data["n"])

    async def work(self) -> None:
        await Worker(QUEUE, self._handle, self._url, concurrency=CONCURRENCY, handle_signals=False).run()


ADAPTER = GlideMQAdapter
