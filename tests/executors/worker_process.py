"""A worker in a separate process, which signals stop: `python -m tests.executors.worker_process <url>`."""

from __future__ import annotations

import asyncio
import sys

from glidemq_async import Worker
from glidemq_async.executors import SubprocessExecutor
from tests.executors import handlers


async def main(url: str) -> None:
    executor = SubprocessExecutor(2, grace=0.1, warm=0)
    worker = Worker(
        "q",
        handlers.work_for,
        url,
        concurrency=2,
        executor=executor,
        lock_duration=1,
        max_stalled=1_000,
        shutdown_timeout=0.1,
    )
    starting = asyncio.create_task(worker.run())
    print("started", flush=True)
    await starting


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
