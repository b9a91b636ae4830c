"""The process of idle workers: `python -m benchmarks.idle_workers URL WORKERS CONCURRENCY`.

Prints "ready" once all workers are idle. A line on stdin ends the process, which then prints the start time of each
handler.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, Final

import uvloop

from glidemq_async import Job, Worker
from glidemq_async.storage import open_storage

from .bench import PAYLOAD, QUEUE

# Long enough that no worker polls or renews during the measurement. Sweeps continue.
QUIET_SECONDS: Final = 600.0


async def main(url: str, workers: int, concurrency: int) -> None:
    """Run the workers until the parent writes a line."""
    started: dict[str, float] = {}

    async def note(job: Job[Any, Any]) -> object:
        started[job.id] = time.time()
        return PAYLOAD

    async with open_storage(url) as storage:
        team = [
            Worker[Any, Any](
                QUEUE,
                note,
                storage,
                concurrency=concurrency,
                poll_interval=QUIET_SECONDS,
                lock_duration=QUIET_SECONDS,
                handle_signals=False,
            )
            for _ in range(workers)
        ]
        for worker in team:
            await worker.start()
        await asyncio.gather(*(worker.until_empty() for worker in team))
        await asyncio.sleep(0.2)  # the last worker registers as idle
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.gather(*(worker.close() for worker in team))
    print(json.dumps(started), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
