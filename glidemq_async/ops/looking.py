"""The part of the operations core that reads the figures of queues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from glidemq_async.ops.audit import AuditLog
from glidemq_async.ops.bulk.methods import read_operations
from glidemq_async.ops.connections import Connections
from glidemq_async.ops.live import TICK_SECONDS, Live
from glidemq_async.ops.overview import Overview, Overviews
from glidemq_async.ops.queue_rows import QueueDetail, QueueSummary, QueueWorker, ScheduleRow
from glidemq_async.ops.server_info import ServerInfo, read_server

AUDIT_LINES: Final = 10
"""Number of audit lines in an overview."""
OPERATIONS: Final = 50
"""Number of bulk operations whose progress is watched."""
RECENT_SECONDS: Final = 30.0
"""Greatest age in seconds of a reading that `recent_overview` returns again."""


@dataclass(frozen=True, slots=True, eq=False)
class Pulse:
    """The state of all queues, for viewers who wait for a change. Readings that differ only in their time are equal."""

    overview: Overview

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pulse) and replace(self.overview, as_of=other.overview.as_of) == other.overview

    __hash__ = None  # type: ignore[assignment]

    @property
    def document(self) -> dict[str, object]:
        """The verdict and the numbers of jobs."""
        return {"verdict": self.overview.verdict, "totals": self.overview.totals}


class Looking:
    """The methods of Ops that read the figures of queues. Lists of queues may be 5 seconds old."""

    _connections: Connections

    async def known_queue_names(self) -> list[str]:
        """Return the names of the queues. Queues that were created in the last 5 seconds may be missing."""
        return await self._figures.names()

    async def queues(self, names: Sequence[str] | None = None) -> list[QueueSummary]:
        """Return the figures of these queues, or of all. One request to the server reads 40 queues."""
        return await self._figures.summaries(names)

    async def overview(self) -> Overview:
        """Return the state of all queues, with a verdict and its reasons."""
        return await self._connections.part(Watched).overview()

    async def recent_overview(self) -> Overview:
        """Return the last state that viewers of this process have seen, 30 seconds old at most, or a new one."""
        return await self._connections.part(Watched).recent_overview()

    async def queue_detail(self, name: str) -> QueueDetail:
        """Return a queue with its minutes, workers and schedules. Raises QueueNotFound."""
        return await self._figures.detail(name)

    async def workers(self, names: Sequence[str] | None = None) -> list[QueueWorker]:
        """Return the live workers of these queues, or of all."""
        return await self._figures.workers(names)

    async def schedules(self, names: Sequence[str] | None = None) -> list[ScheduleRow]:
        """Return the job schedulers of these queues, or of all, the next ones first."""
        return await self._figures.schedules(names)

    async def server(self) -> ServerInfo:
        """Return the servers of the store: their version, memory and persistence."""
        return await read_server(self._connections)

    @property
    def live(self) -> Live:
        """The live documents of this process. All viewers share one reader."""
        return self._connections.part(Watched).live

    @property
    def _figures(self) -> Overviews:
        return self._connections.part(Overviews)


class Watched:
    """The documents that viewers watch, and their reader. One reading of the queues serves all topics of a tick."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._figures = connections.part(Overviews)
        self._recent: tuple[float, Overview] | None = None
        """The last reading, and when it ended."""
        self._began = 0.0
        """When the last reading began."""
        self._reading = asyncio.Lock()
        readers = {
            "overview": self._overview,
            "pulse": self._pulse,
            "queues": self._queues,
            "queue": self._queue,
            "workers": self._workers,
            "schedules": self._schedules,
            "operations": self._operations,
        }
        self.live = Live(readers, rows=["queues"])

    async def close(self) -> None:
        """End the reader."""
        await self.live.close()

    # A reading of a thousand queues takes a large part of a second, and fifty browsers may open the page at the same
    # moment, for example when the server of the pages has restarted. The first request reads. The others have arrived
    # after this reading began, so they need a newer one, and all of them share the next.
    async def overview(self) -> Overview:
        """Return the state of all queues. Callers that wait at the same time share a reading."""
        asked = time.monotonic()
        async with self._reading:
            if self._recent is not None and self._began >= asked:
                return self._recent[1]
            began = time.monotonic()
            audit = await AuditLog(self._connections.system.audit).read(AUDIT_LINES)
            found = await self._figures.overview(audit=audit.lines)
            self._began, self._recent = began, (time.monotonic(), found)
            return found

    async def recent_overview(self) -> Overview:
        """Return the last reading while there are viewers and it is recent. Otherwise read the state of all queues."""
        if self._recent is not None and self.live.is_reading and time.monotonic() - self._recent[0] < RECENT_SECONDS:
            return self._recent[1]
        return await self.overview()

    async def _overview(self, _topic: str) -> Overview:
        if self._recent is not None and time.monotonic() - self._recent[0] < TICK_SECONDS / 2:
            return self._recent[1]
        return await self.overview()

    async def _pulse(self, topic: str) -> object:
        return Pulse(await self._overview(topic))

    async def _queues(self, topic: str) -> object:
        return (await self._overview(topic)).queues

    async def _queue(self, topic: str) -> object:
        return await self._figures.detail(topic.partition(":")[2])

    async def _workers(self, topic: str) -> object:
        return await self._figures.workers([each.name for each in (await self._overview(topic)).queues if each.workers])

    async def _schedules(self, topic: str) -> object:
        names = [each.name for each in (await self._overview(topic)).queues if each.schedules]
        return await self._figures.schedules(names)

    async def _operations(self, _topic: str) -> object:
        return await read_operations(self._connections, OPERATIONS)
