"""An executor that cannot say which of its jobs may share a task: each of them runs, and no other job waits for it."""

from __future__ import annotations

from typing import Any

import pytest
from typing_extensions import override

from glidemq_async.executors.inline import InlineExecutor
from tests.support.helpers import PATIENCE, AnyJob, AnyQueue, Heard, echo, idle, worker_of

pytestmark = pytest.mark.only_on("memory")


class Undecided(InlineExecutor):
    """An executor that raises an exception when it is asked about some jobs."""

    @override
    def may_share(self, job: AnyJob) -> bool:
        if job.data % 2:
            raise ValueError("undecided")
        return True


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("options", [{}, {"priority": 1}])
async def test_all_jobs_of_a_claim_run(queue: AnyQueue, first: int, options: dict[str, Any]) -> None:
    jobs = [await queue.add("n", number, **options) for number in range(first, first + 6)]
    async with worker_of(queue, echo, executor=Undecided(), concurrency=10) as worker:
        errors = Heard(worker, "error")
        assert [await job.result(PATIENCE) for job in jobs] == list(range(first, first + 6))
        if options or first:
            assert str((await errors.next())[0]) == "undecided"
        assert worker.broken is None
        assert await queue.add_and_wait("n", 1, wait_timeout=PATIENCE) == 1


async def test_a_pushed_job_runs(queue: AnyQueue) -> None:
    async with worker_of(queue, echo, executor=Undecided()) as worker:
        for number in range(4):
            await idle(worker)
            assert await queue.add_and_wait("n", number, wait_timeout=PATIENCE) == number
