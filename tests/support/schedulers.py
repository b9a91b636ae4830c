"""Helpers for tests of job schedulers: their stored form, and the fire times that have fired."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from glidemq_async import JobScheduler
from tests.support.helpers import PATIENCE, AnyQueue

FAR: dict[str, Any] = {"cron": "0 0 1 1 *"}


def base_of(queue: AnyQueue) -> str:
    """Return the base key of a queue."""
    return f"glide:{{{queue.name}}}"


async def scheduler_of(queue: AnyQueue, scheduler_id: str = "s") -> JobScheduler[Any]:
    """Return a scheduler that must exist."""
    found = await queue.get_job_scheduler(scheduler_id)
    assert found is not None
    return found


async def ended_schedule(queue: AnyQueue, scheduler_id: str = "s") -> JobScheduler[Any]:
    """Wait until a scheduler has ended."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await scheduler_of(queue, scheduler_id)
            if found.next_at is None:
                return found
            await asyncio.sleep(0.02)


async def fire_times(queue: AnyQueue, scheduler_id: str = "s") -> list[int]:
    """Return the fire times whose jobs are in the queue, in order."""
    found: set[int] = set()
    # In the order in which a job moves, so that a moving job may be read twice but is never missed.
    for state in ("delayed", "waiting", "active", "completed"):
        async for job in queue.iter_jobs(state):
            if job.id.startswith(f"{scheduler_id}@"):
                found.add(int(job.id.rpartition("@")[2]))
    return sorted(found)


def are_every(found: list[int], interval: int) -> bool:
    """Return whether all neighbours are this many milliseconds apart."""
    return [b - a for a, b in pairwise(found)] == [interval] * (len(found) - 1)
