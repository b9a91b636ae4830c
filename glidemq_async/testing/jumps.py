"""Moves the clock of a test to the instants for which a job waits."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Protocol

from glidemq_async.jobs.job import Job
from glidemq_async.stored.record import FINAL
from glidemq_async.testing.clock import MovableClock

MOST: Final = 1_000
"""Number of instants after which the test fails: a job that waits so often may never end."""


class TestedApp(Protocol):
    """The app of a test, and the jobs in its queues."""

    async def drain(self) -> object:
        """Run all due jobs."""
        ...

    async def find(self, queue: str, job_id: str) -> Job[Any, Any] | None:
        """Return a job, None if it has no record."""
        ...


async def jump_to_end(job: Job[Any, Any], clock: MovableClock, app: TestedApp) -> Job[Any, Any]:
    """Run due jobs until a job has ended, and return it. Move the clock whenever it waits for an instant.

    Raises AssertionError if the job waits for something else, or has waited for 1,000 instants.
    """
    for _ in range(MOST):
        await app.drain()
        found = await app.find(job.queue, job.id)
        if found is None:
            raise AssertionError(f"job {job.id} has no record any more")
        if found.state in FINAL:
            return found
        due = await _due_of(found, app)
        if due is None:
            raise AssertionError(f"job {job.id} does not end, because it {_why(found)}")
        if due > (now := await clock.now()):
            await clock.advance(due - now)
    raise AssertionError(f"job {job.id} does not end: it has waited for {MOST} instants")


async def _due_of(job: Job[Any, Any], app: TestedApp) -> datetime | None:
    """Return the first instant for which a job or one of its children waits."""
    found = [job.due_at] if job.due_at else []
    if (job.suspension is not None and job.suspension.children) or job.state == "waiting-children":
        for child in (await job.get_dependencies()).pending:
            waiting = await app.find(child.queue, child.job_id)
            due = await _due_of(waiting, app) if waiting is not None else None
            found += [due] if due else []
    return min(found, default=None)


def _why(job: Job[Any, Any]) -> str:
    if job.suspension is not None and job.suspension.reason:
        return f"{job.suspension.reason}; send it a signal with harness.send"
    return f"is {job.state}"
