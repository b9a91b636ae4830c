"""Rows of jobs: the selection by options."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("pyspark")

from glidemq_async import Queue
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.durations import from_ms
from glidemq_async.spark.read.job_rows import rows_of
from glidemq_async.spark.read.options import read_options
from glidemq_async.storage import MemoryStorage
from glidemq_async.testing import MovableClock


async def test_created_after_includes_its_own_millisecond() -> None:
    """From 2038 on, float seconds times a thousand are sometimes less than the original milliseconds."""
    async with MemoryStorage(testing=True) as storage, Queue[Any, Any]("q", storage) as queue:
        client, clock = QueueClient("q", storage, prefix="glide", mode=None), MovableClock(storage)
        await clock.move_to(from_ms(2_150_000_000_000))
        for _ in range(200):
            await clock.advance(timedelta(milliseconds=7))
            job = await queue.add("n")
            assert job.created_at is not None
            given = {"url": "file:///x", "kind": "jobs", "subscribe": "q"}
            options = read_options(given | {"createdAfter": job.created_at.isoformat()}, streaming=False)
            (row,) = await rows_of(client, options, [job.id])
            assert row["created_at"] == job.created_at
