"""Several workers in one process that start together and share one shutdown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from typing_extensions import override

from glidemq_async._internal.waits import finish_all, together
from glidemq_async.worker.health_server import HealthServer
from glidemq_async.worker.lifecycle import Runs
from glidemq_async.worker.worker import Worker


class WorkerPool(Runs):
    """Runs several workers in one process. Give them the same Storage to share its connections.

    SIGTERM, SIGINT, `stop()`, or a worker that cannot start shuts all workers down at the same time. A failed start
    closes the pool. Raises ValueError without workers. `handle_signals=False` leaves SIGTERM and SIGINT to the program
    around the pool; the option of the single workers is ignored. `health_port` answers probes for all workers; see
    HealthServer.
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
            worker.on("closing", partial(self._break_off_with, worker))

    @property
    def workers(self) -> Sequence[Worker[Any, Any]]:
        """The workers."""
        return self._workers

    @override
    async def _run_until_empty(self) -> None:
        await together(worker.until_empty() for worker in self._workers)

    @override
    def stop(self, *, immediately: bool = False) -> None:
        super().stop()
        for worker in self._workers:
            worker.stop(immediately=immediately)

    @override
    async def _start(self) -> None:
        try:
            if self._health_server is not None:
                await self._health_server.start()
            for worker in self._workers:
                await worker.start()
        except BaseException:
            self._closed = True  # the workers are closed too and cannot start again
            await self._close()
            raise

    @override
    async def _close(self) -> None:
        try:
            await finish_all(worker.close() for worker in self._workers)
        finally:
            if self._health_server is not None:
                await self._health_server.close()
