"""A worker whose jobs run steps: `python -m tests.crash.step_worker URL QUEUE FILE`.

Each execution of a step appends a line to the file.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from typing import Any

from glidemq_async import Job, Worker

BRANCHES, STEPS = 3, 5
LEASE = 1.0


async def work(job: Job[Any, Any]) -> list[str]:
    """Run steps in concurrent branches."""

    async def effect(step: str) -> str:
        await asyncio.sleep(random.random() / 100)
        os.write(_file, f"{job.id} {step} {job.fence}\n".encode())
        return step

    async def branch(number: int) -> list[str]:
        return [await job.step("effect", effect, f"{number}.{step}") for step in range(STEPS)]

    return [step for steps in await asyncio.gather(*map(branch, range(BRANCHES))) for step in steps]


async def main(url: str, queue: str) -> None:
    """Run jobs until a test kills the process."""
    worker: Worker[Any, Any] = Worker(queue, work, url, concurrency=4, lock_duration=LEASE, max_stalled=1_000)
    await worker.run()


if __name__ == "__main__":
    _file = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    asyncio.run(main(sys.argv[1], sys.argv[2]))
