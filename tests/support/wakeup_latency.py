"""The time until an idle worker starts a new job, compared with round trips at the same moments."""

from __future__ import annotations

import asyncio
from statistics import median
from typing import Any

from tests.support.helpers import AnyJob, AnyQueue, idle, soon, worker_of

SECONDS = 0.05
"""Less than any timer of a worker: a job that starts within it was pushed."""
TRIPS = 10
"""The number of round trips that a start may take in addition. A busy host makes these longer too."""


async def starts_immediately(queue: AnyQueue, adds: int, **options: Any) -> None:
    """Add jobs one after the other to a queue with an idle worker. At least half of them must start within
    milliseconds.
    """
    loop = asyncio.get_running_loop()
    took: list[float] = []
    trips: list[float] = []
    started: asyncio.Queue[float] = asyncio.Queue()

    async def note(job: AnyJob) -> None:
        started.put_nowait(loop.time())

    async with worker_of(queue, note) as worker:
        await idle(worker)
        for _ in range(adds):
            asked = loop.time()
            await queue.is_paused()
            began = loop.time()
            trips.append(began - asked)
            job = await queue.add("n", **options)
            took.append(await soon(started.get()) - began)
            await job.result(10)
    assert median(took) < SECONDS + TRIPS * median(trips), (sorted(took), sorted(trips))
