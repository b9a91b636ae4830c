"""How soon an idle worker starts what comes, held against the round trips of the same moments."""

from __future__ import annotations

import asyncio
from statistics import median
from typing import Any

from tests.support.helpers import AnyJob, AnyQueue, idle, soon, worker_of

SECONDS = 0.05
"""Less than any timer of a worker: what comes within it was pushed."""
TRIPS = 10
"""Round trips that a start may take beyond that: a host that gives its programs little time makes them long too."""


async def starts_at_once(queue: AnyQueue, adds: int, **options: Any) -> None:
    """Add jobs one after the other to a queue with an idle worker: half of them at least start within milliseconds."""
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
