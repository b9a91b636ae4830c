"""Collects the ends of jobs of one or several queues for one caller."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias

from glidemq_async.client.ended import Ended
from glidemq_async.client.queue_client import QueueClient

Keep: TypeAlias = Callable[[QueueClient, str, Ended | None], None]


class EndCollector:
    """Waits for jobs, given as the ids of each client, while it is open. One task for each client collects the ends.

    `keep` is called with each end when it arrives, also if the caller never asks for it with `next`.
    """

    def __init__(self, job_ids: Mapping[QueueClient, Collection[str]], keep: Keep) -> None:
        self._job_ids = job_ids
        self._keep = keep
        self._arrived: deque[tuple[QueueClient, str]] = deque()
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for client, job_ids in self._job_ids.items():
            collection = client.results.collect(job_ids, partial(self._deliver, client))
            task = asyncio.create_task(collection.run())
            task.add_done_callback(self._note_task)
            self._tasks.append(task)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def next(self) -> tuple[QueueClient, str]:
        """Return the client and the id of the next job that has ended. Raises what a collecting task has raised."""
        while not self._arrived:
            self._changed.clear()
            for task in self._tasks:
                if task.done():
                    task.result()
            await self._changed.wait()
        return self._arrived.popleft()

    def _deliver(self, client: QueueClient, job_id: str, ended: Ended | None) -> None:
        self._keep(client, job_id, ended)
        self._arrived.append((client, job_id))
        self._changed.set()

    def _note_task(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved here, because the caller may have left
        self._changed.set()
