"""The garbage collector: a worker keeps few objects of a job, so draining jobs causes hardly any collections.

Each collection walks objects of the whole service. Python 3.12 collects when 700 more objects exist than after the last
collection, so a batch of 100 jobs must need fewer than seven objects a job.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from glidemq_async import Queue, Worker
from glidemq_async.storage import MemoryStorage

JOBS = 2_000
CONCURRENCY = 100
NEW_OBJECTS = 700


@contextmanager
def counted_collections() -> Generator[list[int]]:
    """Count the collections of the youngest objects, with the threshold of Python 3.12."""
    found: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            found.append(info["generation"])

    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(NEW_OBJECTS, *before[1:])
    gc.callbacks.append(note)
    try:
        yield found
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)


async def handler(job: Any) -> None:
    del job


@pytest.mark.smoke
async def test_draining_plain_jobs_causes_hardly_any_collection() -> None:
    async with MemoryStorage() as storage, Queue[Any, Any]("q", storage) as queue:
        await queue.add_bulk([("n", None)] * JOBS)
        async with Worker[Any, Any]("q", handler, storage, concurrency=CONCURRENCY, handle_signals=False) as worker:
            worker.pause()
            with counted_collections() as found:
                worker.resume()
                await worker.until_empty()
    # The batches of a worker that keeps more objects cause one collection each, which is 20.
    assert len(found) <= JOBS / CONCURRENCY / 4, f"{len(found)} collections: {found}"
