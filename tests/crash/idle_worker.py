"""The process of an idle worker: `python -m tests.crash.idle_worker URL QUEUE LEASE POINT`.

It prints "idle" when adds can push jobs to it, and the id of each job that it starts. It kills itself at the failpoint
POINT ("" = never).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from glidemq_async import Job, Worker
from glidemq_async._internal import failpoints
from tests.support.helpers import idle


async def main(url: str, queue: str, lease: float, point: str) -> None:
    """Work until the process is killed."""
    if point:
        failpoints.arm(point, lambda: os.kill(os.getpid(), signal.SIGKILL))

    async def handler(job: Job[int, int]) -> int:
        print(job.id, flush=True)
        return job.fence

    worker = Worker(queue, handler, url, lock_duration=lease, poll_interval=60)
    await worker.start()
    await idle(worker)
    print("idle", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]))
