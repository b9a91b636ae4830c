"""A real queue for the pipeline: jobs whose fate is told by their data."""

from __future__ import annotations

from typing import Any

from glidemq_async import Backoff, Job, JobOptions, Queue, UnrecoverableError, Worker

RETRIES = JobOptions(attempts=3, backoff=Backoff.fixed(0))


async def handle(job: Job[Any, Any]) -> str:
    """Do as the data say: fail for good ("fail"), at the first run ("retry"), or not at all."""
    if job.data == "fail":
        raise UnrecoverableError("never")
    if job.data == "retry" and job.attempts_made == 0:
        raise TimeoutError("later")
    return "done"


async def drain(url: str, queue: str, *, dead: str | None = None) -> None:
    """Run all that waits, at once and in this process."""
    await Worker(queue, handle, url, concurrency=20, dead_letter_queue=dead, handle_signals=False).run(until_empty=True)


async def fill(url: str, queue: str, fates: list[str], *, start: int = 0) -> None:
    """Add jobs j<number> of these fates, by turns under two names."""
    async with Queue[Any, Any](queue, url, default_options=RETRIES) as opened:
        await opened.add_bulk(
            [
                (("mail", "resize")[number % 2], fate, JobOptions(job_id=f"j{number}"))
                for number, fate in enumerate(fates, start)
            ]
        )
