"""Several workers in one process that start together and share one shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from glidemq_async.worker.signals import stop_on_signals
from glidemq_async.worker.worker import Worker


class WorkerPool:
    """Runs workers side by side; give them one Storage to share its connections.

    The first one that cannot start, SIGTERM, SIGINT or `stop()` shuts all of them down, at the same time. Raises
    ValueError when there is no worker.
    """

    def __init__(self, workers: Sequence[Worker[Any, Any]], *, handle_signals: bool = True) -> None:
        if not workers:
            raise ValueError("a pool needs at least one worker, got none")
        self._workers = list(workers)
        self._handle_signals = handle_signals
        self._stop_requested = asyncio.Event()

    async def run(self, *, until_empty: bool = False) -> None:
        """Work until stopped; with `until_empty`, until every worker has found its queue empty."""
        with stop_on_signals(self.stop if self._handle_signals else None):
            try:
                await self.start()
                if until_empty:
                    await asyncio.gather(*(worker.until_empty() for worker in self._workers))
                else:
                    await self._stop_requested.wait()
            finally:
                await asyncio.shield(self.close())

    def stop(self) -> None:
        """Ask `run` to shut down; returns at once."""
        self._stop_requested.set()
        for worker in self._workers:
            worker.stop()

    async def start(self) -> None:
        """Start every worker. Raises what `Worker.start` raises, after closing those that started."""
        try:
            for worker in self._workers:
                await worker.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close every worker at the same time; idempotent."""
        await asyncio.gather(*(worker.close() for worker in self._workers))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
