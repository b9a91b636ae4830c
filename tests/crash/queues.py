"""Short connections of the parent to a queue: each one opens a connection, makes one request, and closes."""

from __future__ import annotations

from collections.abc import Sequence

from glidemq_async import JobOptions, Queue
from tests.crash.checker import UNFINISHED
from tests.crash.roles import KEEP_ALL, Payload, Spec, connect_to


async def counts_of(url: str, queue_name: str) -> dict[str, int]:
    """Return the number of jobs that have not ended, by state."""
    async with connect_to(url) as storage, Queue[Payload, int](queue_name, storage) as queue:
        counts = await queue.get_job_counts()
        return {state: counts[state] for state in UNFINISHED}


async def pause(url: str, queue_name: str) -> None:
    """Pause a queue. The pause also ends the reader of its events."""
    async with connect_to(url) as storage, Queue[Payload, int](queue_name, storage) as queue:
        await queue.pause()


async def add_all(url: str, queue_name: str, specs: Sequence[Spec]) -> list[str]:
    """Add jobs in bulk and return their ids."""
    async with connect_to(url) as storage, Queue[Payload, int](queue_name, storage) as queue:
        jobs = await queue.add_bulk(
            (
                "work",
                spec["payload"],
                JobOptions(job_id=spec["job_id"], keep_completed=KEEP_ALL, keep_failed=KEEP_ALL),
            )
            for spec in specs
        )
        return [job.id for job in jobs]


async def switch_fencing_off(url: str, queue_name: str) -> None:
    """Turn off the check of fencing tokens, which only a testing build of the library can."""
    async with connect_to(url) as storage, Queue[Payload, int](queue_name, storage):
        await storage.call("testControl", f"glide:{{{queue_name}}}", ["unfenced", "1"])


async def shift_clock(url: str, queue_name: str, seconds: float) -> None:
    """Shift the server's clock by this time, which only a testing build of the library can."""
    async with connect_to(url) as storage, Queue[Payload, int](queue_name, storage):
        await storage.call("testControl", f"glide:{{{queue_name}}}", ["clock_shift", round(seconds * 1000)])
