"""A worker whose runs wait for signals and stay in memory: `python -m tests.crash.warm_worker URL QUEUE FILE`.

Each start of the function, and each execution of a step, appends a line to the file.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from glidemq_async import GlideMQ, Workflow, current_job, workflows
from glidemq_async.workflows import waiting

ROUNDS = 6
LEASE = 1.0


def talk_of(mq: GlideMQ[Any]) -> Workflow[[], list[int]]:
    """Return a workflow that receives `ROUNDS` signals and makes a step for each."""

    @mq.step
    async def note(word: int) -> int:
        _write(f"step {current_job().id} {word} {current_job().fence}")
        return word

    @mq.workflow(attempts=1_000)
    async def talk() -> list[int]:
        _write(f"start {current_job().id}")
        return [await note((await workflows.receive("say")).data) for _ in range(ROUNDS)]

    return talk


def _write(line: str) -> None:
    os.write(_file, f"{line}\n".encode())


async def main(url: str, queue: str) -> None:
    """Run workflows until a test kills the process."""
    waiting.__dict__["GRACE"] = 0.01
    mq: GlideMQ[Any] = GlideMQ(url, queue=queue)
    talk_of(mq)
    await mq.run_worker(concurrency=4, lock_duration=LEASE, max_stalled=1_000)


if __name__ == "__main__":
    _file = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    asyncio.run(main(sys.argv[1], sys.argv[2]))
