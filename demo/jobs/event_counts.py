"""Counts of the queue's events during the demonstration: events of each kind, and final events of each job."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable

from glidemq_async import EventGap, QueueEvent


class EventCounts:
    """Counts of the events of one queue, from the first event on."""

    def __init__(self) -> None:
        self.by_kind: Counter[str] = Counter()
        self.endings: Counter[str] = Counter()
        """Number of final events of each job. More than one is a duplicate."""
        self.missed = 0
        """Events that were trimmed before they were read."""
        self._reached: list[tuple[int, asyncio.Event]] = []

    @property
    def done(self) -> int:
        """Number of jobs that have ended."""
        return len(self.endings)

    async def follow(self, events: AsyncIterable[QueueEvent | EventGap]) -> None:
        """Count events until the queue is paused."""
        async for event in events:
            if isinstance(event, EventGap):
                self.missed += event.missed or 1
                continue
            self.by_kind[event.kind] += 1
            if event.kind in {"completed", "failed"}:
                self.endings[event.job_id] += 1
                self._wake_waiters()
            elif event.kind == "paused":
                return

    async def reached(self, done: int) -> None:
        """Wait until this number of jobs has ended."""
        event = asyncio.Event()
        self._reached.append((done, event))
        self._wake_waiters()
        await event.wait()

    def _wake_waiters(self) -> None:
        for done, event in self._reached:
            if self.done >= done:
                event.set()
