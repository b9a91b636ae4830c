"""BullMQ for Python."""
# pyright: basic, reportMissingImports=false, reportUnknownMemberType=false

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from bullmq import Queue, Worker

from benchmarks.peers.harness import CONCURRENCY, payload


class BullMQAdapter:
    """A queue with default options, which keep completed jobs, and a worker with 100 slots."""

    def __init__(self, url: str, note: Callable[[int], None]) -> None:
        self._url, self._note = url, note

    async def open(self) -> None:
        self._queue = Queue("jobs", {"connection": self._url})

    async def add(self, number: int) -> None:
        await self._queue.add("handle", payload(number))

    async def add_many(self, numbers: Sequence[int]) -> None:
        await self._queue.addBulk([{"name": "handle", "data": payload(number)} for number in numbers])

    async def _handle(self, job: Any, _token: str) -> None:
        self._note(job.data["n"])

    async def work(self) -> None:
        self._worker = Worker("jobs", self._handle, {"connection": self._url, "concurrency": CONCURRENCY})
        await asyncio.Event().wait()


ADAPTER = BullMQAdapter
