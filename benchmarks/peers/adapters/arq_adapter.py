"""arq."""
# pyright: basic, reportMissingImports=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable

from arq import create_pool, func
from arq.connections import RedisSettings
from arq.worker import Worker

from benchmarks.peers.harness import CONCURRENCY, payload

POLL_SECONDS = 0.01


class ArqAdapter:
    """A worker with 100 slots that polls every 10 ms instead of every 0.5 s."""

    def __init__(self, url: str, note: Callable[[int], None]) -> None:
        self._settings = RedisSettings.from_dsn(url)
        self._note = note

    async def open(self) -> None:
        self._pool = await create_pool(self._settings)

    async def add(self, number: int) -> None:
        await self._pool.enqueue_job("handle", **payload(number))

    async def work(self) -> None:
        async def handle(_context: object, n: int, to: str, subject: str) -> None:
            self._note(n)

        worker = Worker(
            [func(handle, name="handle")],
            redis_settings=self._settings,
            max_jobs=CONCURRENCY,
            poll_delay=POLL_SECONDS,
            handle_signals=False,
            log_results=False,
        )
        await worker.async_run()


ADAPTER = ArqAdapter
