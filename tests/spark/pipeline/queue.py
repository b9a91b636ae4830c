"""A real queue for the pipeline, with jobs whose data determines their end."""

from __future__ import annotations

from typing import Any

from glidemq_async import Backoff, Job, JobOptions, Queue, UnrecoverableError, Worker

RETRIES = JobOptions(attempts=3, backoff=Backoff.fixed(0))


async def handle(job: Job[Any, Any]) -> str:
    """Fail permanently ("fail"), in the first run only ("retry"), or not at all, as the data requires."""
    if job.data == "fail":
        raise UnrecoverableError("never")
    if job.data == "retry" and job.attempts_made == 0:
        raise TimeoutError("later")
    return "done"


async def drain(url: str, queue: str, *, dead: str | None = None) -> None:
    """Run all waiting jobs in this process."""
    await Worker(queue, handle, url, concurrency=20, dead_letter_queue=dead, handle_signals=False).run(until_empty=True)


async def fill(url: str, queue: str, fates: list[str], *, start: int = 0) -> None:
    """Add jobs j<number> with these ends, alternately under two names."""
    async with Queue[Any, Any](queue, url, default_options=RETRIES) as opened:
        await opened.add_bulk(
            [
                (("mail", "resize")[number % 2], fate, JobOptions(job_id=f"j{number}"))
                for number, fate in enumerate(fates, start)
            ]
        )
