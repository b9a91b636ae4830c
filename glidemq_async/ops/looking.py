"""The part of the operations core that reads the figures of queues."""

from __future__ import annotations

from collections.abc import Sequence

from glidemq_async.ops.audit import AuditLog
from glidemq_async.ops.connections import Connections
from glidemq_async.ops.live import Live
from glidemq_async.ops.overview import Overview, Overviews, QueueDetail, QueueSummary, QueueWorker, ScheduleRow
from glidemq_async.ops.server_info import ServerInfo, read_server

AUDIT_LINES = 10
"""Number of audit lines in an overview."""


class Looking:
    """The methods of Ops that read the figures of queues. Lists of queues may be 5 seconds old."""

    _connections: Connections

    async def known_queue_names(self) -> list[str]:
        """Return the names of the queues. Queues that were created in the last 5 seconds may be missing."""
        return await self._figures.names()

    async def queues(self, names: Sequence[str] | None = None) -> list[QueueSummary]:
        """Return the figures of these queues, or of all: one call to the server for each, 200 at a time."""
        return await self._figures.summaries(names)

    async def overview(self) -> Overview:
        """Return the state of all queues, with a verdict and its reasons."""
        return await self._connections.part(Watched).overview()

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
    """The documents that viewers watch, and their reader."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._figures = connections.part(Overviews)
        readers = {
            "overview": self._overview,
            "queues": self._queues,
            "queue": self._queue,
            "workers": self._workers,
            "schedules": self._schedules,
        }
        self.live = Live(readers, rows=["queues"])

    async def close(self) -> None:
        """End the reader."""
        await self.live.close()

    async def overview(self) -> Overview:
        """Return the state of all queues."""
        audit = await AuditLog(self._connections.system.audit).read(AUDIT_LINES)
        return await self._figures.overview(audit=audit.lines)

    async def _overview(self, _topic: str) -> object:
        return await self.overview()

    async def _queues(self, _topic: str) -> object:
        return await self._figures.summaries()

    async def _queue(self, topic: str) -> object:
        return await self._figures.detail(topic.partition(":")[2])

    async def _workers(self, _topic: str) -> object:
        return await self._figures.workers()

    async def _schedules(self, _topic: str) -> object:
        return await self._figures.schedules()
