"""Several workers in one process that start together and share one shutdown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypedDict

from typing_extensions import Unpack, override

from glidemq_async._internal.waits import finish_all, together
from glidemq_async.worker.health_server import HealthServer
from glidemq_async.worker.lifecycle import Runs
from glidemq_async.worker.options import WorkerOptions, worker_options
from glidemq_async.worker.worker import Worker


class PoolKeywords(TypedDict, total=False):
    """The options of a worker that a pool has too."""

    handle_signals: bool
    health_port: int | None


class WorkerPool(Runs):
    """Runs several workers in one process. Give them the same Storage to share its connections.

    SIGTERM, SIGINT, `stop()`, or a worker that cannot start shuts all workers down at the same time. A failed start
    closes the pool.

    Two of the WorkerOptions apply to the pool, and each is also a keyword, which replaces the one in `options`.
    `handle_signals=False` leaves SIGTERM and SIGINT to the program around the pool; the option of the single workers is
    ignored. `health_port` answers probes for all workers; see HealthServer. Set the other options of the workers when
    you create them.

    Raises ValueError without workers, and the errors of WorkerOptions.
    """

    def __init__(
        self,
        workers: Sequence[Worker[Any, Any]],
        *,
        options: WorkerOptions | None = None,
        **keywords: Unpack[PoolKeywords],
    ) -> None:
        chosen, _ = worker_options(options, keywords, PoolKeywords, "pool")
        super().__init__(handle_signals=chosen.handle_signals)
        if not workers:
            raise ValueError("a pool needs at least one worker, got none")
        self._workers = list(workers)
        self._health_server = None if chosen.health_port is None else HealthServer(self._workers, chosen.health_port)
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
