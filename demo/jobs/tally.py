"""What the events of the queue tell while the demonstration runs: live counts, and how often each job ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable

from glidemq_async import EventGap, QueueEvent


class Tally:
    """Counts over the events of one queue, read from the first one on."""

    def __init__(self) -> None:
        self.by_kind: Counter[str] = Counter()
        self.endings: Counter[str] = Counter()
        """How many final events each job has: more than one would be a duplicate."""
        self.missed = 0
        """Events that were trimmed before they were read."""
        self._reached: list[tuple[int, asyncio.Event]] = []

    @property
    def done(self) -> int:
        """How many jobs have reached a final state."""
        return len(self.endings)

    async def follow(self, events: AsyncIterable[QueueEvent | EventGap]) -> None:
        """Count until the queue is paused, which marks the end."""
        async for event in events:
            if isinstance(event, EventGap):
                self.missed += event.missed or 1
                continue
            self.by_kind[event.kind] += 1
            if event.kind in {"completed", "failed"}:
                self.endings[event.job_id] += 1
                self._tell()
            elif event.kind == "paused":
                return

    async def reached(self, done: int) -> None:
        """Wait until so many jobs have ended."""
        event = asyncio.Event()
        self._reached.append((done, event))
        self._tell()
        await event.wait()

    def _tell(self) -> None:
        for done, event in self._reached:
            if self.done >= done:
                event.set()
