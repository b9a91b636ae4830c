"""Helpers for tests of dead letters: handlers that fail, and readers of the dead letters."""

from __future__ import annotations

from typing import Any

from glidemq_async import DeadLetter, UnrecoverableError
from tests.support.helpers import AnyJob, AnyQueue, soon, worker_of


async def fail(job: AnyJob) -> None:
    raise ValueError(f"no {job.data}")


async def hopeless(job: AnyJob) -> None:
    raise UnrecoverableError("never")


async def ids_of(queue: AnyQueue, **options: Any) -> list[str]:
    return [job.id for job in await queue.get_dead_letter_jobs(**options)]


async def dead_letters_of(queue: AnyQueue) -> list[DeadLetter]:
    found = [job.dead_letter for job in await queue.get_dead_letter_jobs()]
    return [dead_letter for dead_letter in found if dead_letter is not None]


async def run_all(queue: AnyQueue, handler: Any, **options: Any) -> None:
    """Run the waiting jobs with one worker until the queue is empty."""
    await soon(worker_of(queue, handler, **options).run(until_empty=True))
