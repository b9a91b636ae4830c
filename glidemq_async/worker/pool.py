"""Several workers in one process that start together and share one shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from glidemq_async.worker.health_server import HealthServer
from glidemq_async.worker.lifecycle import Runs
from glidemq_async.worker.worker import Worker


class WorkerPool(Runs):
    """Runs workers side by side; give them one Storage to share its connections.

    The first one that cannot start, SIGTERM, SIGINT or `stop()` shuts all of them down, at the same time. A start that
    failed closes the pool. Raises ValueError when there is no worker. `handle_signals`: False leaves SIGTERM and SIGINT
    to the program around it, and what the workers say of it does not count. `health_port` answers probes for all of
    them; see HealthServer.
    """

    def __init__(
        self, workers: Sequence[Worker[Any, Any]], *, handle_signals: bool = True, health_port: int | None = None
    ) -> None:
        super().__init__(handle_signals=handle_signals)
        if not workers:
            raise ValueError("a pool needs at least one worker, got none")
        self._workers = list(workers)
        self._health_server = None if health_port is None else HealthServer(self._workers, health_port)
        for worker in workers:
            worker.when_broken = self.break_off

    @property
    def workers(self) -> Sequence[Worker[Any, Any]]:
        """The workers."""
        return self._workers

    @override
    async def _run_until_empty(self) -> None:
        await asyncio.gather(*(worker.until_empty() for worker in self._workers))

    @override
    def stop(self, *, at_once: bool = False) -> None:
        super().stop()
        for worker in self._workers:
            worker.stop(at_once=at_once)

    @override
    async def _start(self) -> None:
        try:
            if self._health_server is not None:
                await self._health_server.start()
            for worker in self._workers:
                await worker.start()
        except BaseException:
            self._closed = True  # its workers are, and cannot be started again
            await self._close()
            raise

    @override
    async def _close(self) -> None:
        try:
            await asyncio.gather(*(worker.close() for worker in self._workers))
        finally:
            if self._health_server is not None:
                await self._health_server.close()
