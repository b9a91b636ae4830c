"""Runs on another worker, whose ends show how much time has passed."""

from __future__ import annotations

import asyncio
from typing import Any

from glidemq_async import Job, Queue
from tests.support.helpers import AnyQueue, Heard, worker_of


async def time_out_elsewhere(queue: AnyQueue, timeout: float) -> None:
    """Wait until a run that begins now has been ended by such a timeout. An earlier one has ended long before."""

    async def hang(job: Job[Any, Any]) -> None:
        await asyncio.Event().wait()

    async with Queue[Any, Any](f"{queue.name}-elsewhere", queue.storage) as other, worker_of(other, hang) as worker:
        failed = Heard(worker, "failed")
        await other.add("n", timeout=timeout)
        await failed.next()
