"""Workers of all subscriptions of the topic `orders`: `python -m tests.crash.topic_worker URL`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from glidemq_async import BroadcastWorker, Job, JobOptions, KeepJobs
from glidemq_async.storage import open_storage

SUBSCRIPTIONS = ("a", "b", "c", "d", "e")
LEASE = 1.0
OPTIONS = JobOptions(keep_completed=KeepJobs())


async def work(job: Job[Any, Any]) -> None:
    """Complete the job. Every job is kept."""


async def main(url: str) -> None:
    """Serve the subscriptions until a test kills the process."""
    async with open_storage(url) as storage:
        workers = [
            BroadcastWorker(
                "orders",
                work,
                storage,
                subscription=name,
                job_options=OPTIONS,
                concurrency=50,
                lock_duration=LEASE,
                max_stalled=1_000,
                handle_signals=False,
            )
            for name in SUBSCRIPTIONS
        ]
        await asyncio.gather(*(worker.run() for worker in workers))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
