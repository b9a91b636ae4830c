"""A queue that Spark writes to, and the jobs that its workers get."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from glidemq_async import Queue, Worker
from glidemq_async.spark import WriteReport, register, write_report
from tests.support.stores import RunningStore


class Written:
    """A queue on a server that other processes can reach, with blocking methods."""

    def __init__(self, store: RunningStore, name: str) -> None:
        self.url, self.name = store.url, name
        self._store = store

    @property
    def options(self) -> dict[str, str]:
        """The options of every write to this queue."""
        return {"url": self.url, "queue": self.name}

    def counts(self, name: str = "") -> dict[str, int]:
        """Return the number of jobs by state, without empty states."""

        async def count() -> dict[str, int]:
            async with Queue[Any, Any](name or self.name, self.url) as queue:
                return {state: n for state, n in (await queue.get_job_counts()).items() if n}

        return asyncio.run(count())

    def ask(self, *words: str | bytes | int) -> Any:
        """Send a command to the server and return its reply."""
        return asyncio.run(self._store.ask(*words))

    def report(self, write_id: str) -> WriteReport:
        """Return the report of a write."""
        return write_report(self.url, self.name, write_id)

    def remove(self, *ids: str) -> None:
        """Delete jobs."""

        async def remove() -> None:
            async with Queue[Any, Any](self.name, self.url) as queue:
                for id_ in ids:
                    await queue.remove(id_)

        asyncio.run(remove())

    def obliterate(self) -> None:
        """Remove the queue."""

        async def obliterate() -> None:
            async with Queue[Any, Any](self.name, self.url) as queue:
                await queue.obliterate(force=True)

        asyncio.run(obliterate())

    def set_dead_letter_queue(self, name: str) -> None:
        """Set the dead-letter queue."""

        async def declare() -> None:
            async with Queue[Any, Any](self.name, self.url) as queue:
                await queue.set_dead_letter_queue(name)

        asyncio.run(declare())

    def run(self, name: str = "") -> dict[str, Any]:
        """Run all jobs, and return the data that the handler got, by job id."""

        async def work() -> dict[str, Any]:
            seen: dict[str, Any] = {}

            async def handle(job: Any) -> None:
                seen[job.id] = job.data

            async with Queue[Any, Any](name or self.name, self.url) as queue:
                counts = await queue.get_job_counts()
                wanted = sum(counts.values()) - counts["completed"] - counts["failed"]
                async with Worker[Any, Any](queue.name, handle, self.url, handle_signals=False), asyncio.timeout(60):
                    while len(seen) < wanted:  # noqa: ASYNC110 - the handler announces itself to nobody
                        await asyncio.sleep(0.005)
                assert await queue.check() == []
            return seen

        return asyncio.run(work())


@pytest.fixture
def queue(store: RunningStore, spark: SparkSession) -> Iterator[Written]:
    """An empty queue."""
    register(spark)
    yield Written(store, "orders")
    asyncio.run(_flush(store))


async def _flush(store: RunningStore) -> None:
    await store.command("FLUSHALL")
