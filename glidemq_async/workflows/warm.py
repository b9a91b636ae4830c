"""Workflows that stay in memory while their jobs are suspended.

The next run continues the function where it waits, if the same worker gets it. Otherwise the function starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from glidemq_async.client.warm_runs import WarmRuns
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import client_of, continue_as, take_meter
from glidemq_async.workflows.clock import RunClock
from glidemq_async.workflows.run import WorkflowRun
from glidemq_async.workflows.waiting import Given


class WarmWorkflow:
    """The function of a workflow, with the object of its first run, which `current_job` returns to the function."""

    def __init__(self, job: Job[Any, Any], run: WorkflowRun) -> None:
        self._job = job
        self.client = client_of(job)
        self.run = run

    @property
    def fence(self) -> int:
        """The fencing token of the last run of the function."""
        return self._job.fence

    def fits(self, job: Job[Any, Any], given: Given) -> bool:
        """Return whether this run of the job can continue the function."""
        return self.run.waiting.can_go_on(given, job.fence)

    async def go_on(self, job: Job[Any, Any], given: Given, clock: RunClock, keep: Callable[[], bool]) -> Any:
        """Continue the function in this run of its job. Raises as `Waiting.drive`."""
        continue_as(self._job, job)
        self.run.clock = clock
        try:
            return await self.run.waiting.go_on(given, clock, keep)
        finally:
            take_meter(job, self._job)

    async def leave(self) -> None:
        """Cancel the function, and wait until it has ended."""
        await self.run.waiting.leave()


def take_warm(job: Job[Any, Any], given: Given) -> WarmWorkflow | None:
    """Return the function that this run can continue, None if the function must start again."""
    warm_runs = client_of(job).warm_runs
    if warm_runs is None:
        return None
    found = cast("WarmWorkflow | None", warm_runs.take(job.id))
    if found is None or found.fits(job, given):
        return found
    warm_runs.leave(found)
    return None


def keep_warm(warm: WarmWorkflow, *, is_allowed: bool) -> bool:
    """Keep the function of a run that is being suspended. Return False if it must be cancelled instead."""
    job = warm.run.journal.job_id
    client = warm.client
    if not is_allowed or client.most_warm_runs < 1:
        return False
    if client.warm_runs is None:
        client.warm_runs = WarmRuns(client.most_warm_runs)
    client.warm_runs.keep(job, warm)
    return True
