"""The job object that the function of a warm run keeps, in later runs of its job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glidemq_async import GlideMQ, Job, JobBudget, Middleware, current_job, workflows
from glidemq_async.storage import Storage
from glidemq_async.tasks.task import AnyTask
from glidemq_async.workflows import waiting
from tests.support.helpers import PATIENCE, reaches


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "GRACE", 0.02)


@pytest.fixture
def mq(storage: Storage, name: str) -> GlideMQ[Any]:
    return GlideMQ(storage, queue=name)


async def test_a_job_object_of_a_later_run_works_in_the_run_after_it(mq: GlideMQ[Any]) -> None:
    @mq.workflow
    async def order() -> int:
        await workflows.receive("said")
        job = current_job()
        await workflows.receive("said")
        await job.update_progress("third")
        return job.fence

    async with mq, mq.worker():
        run = await order.start()
        for _ in range(2):
            await reaches(run, "suspended")
            await run.signal("said")
        assert await run.result(PATIENCE) == 3


async def test_a_task_of_a_later_run_has_the_present_job(mq: GlideMQ[Any]) -> None:
    @mq.workflow
    async def order() -> int:
        async def follow() -> int:
            await workflows.receive("b")
            await current_job().log("line")
            return current_job().fence

        await workflows.receive("a")
        return await asyncio.create_task(follow())

    async with mq, mq.worker():
        run = await order.start()
        for name in ("a", "b"):
            await reaches(run, "suspended")
            await run.signal(name)
        assert await run.result(PATIENCE) == 3


async def test_the_last_progress_of_a_warm_run_is_stored(mq: GlideMQ[Any]) -> None:
    @mq.workflow
    async def order() -> None:
        job = current_job()
        await workflows.receive("said")
        for number in range(300):
            await job.update_progress(number)

    async with mq, mq.worker(budget=JobBudget(updates=2)):
        run = await order.start()
        await reaches(run, "suspended")
        await run.signal("said")
        await run.result(PATIENCE)
        await run.job.refresh()
        assert run.job.progress == 299


class Refreshing(Middleware):
    """Reads the job before each run."""

    async def before_run(self, task: AnyTask, job: Job[Any, Any]) -> None:
        await job.refresh()


async def test_a_job_that_was_refreshed_before_the_run_stays_refreshed(mq: GlideMQ[Any]) -> None:
    mq.add_middleware(Refreshing())
    runs: list[int] = []

    @mq.workflow(attempts=2, backoff=0)
    async def order() -> list[Any]:
        job = current_job()
        runs.append(job.fence)
        if len(runs) == 1:
            raise RuntimeError("first")
        await workflows.receive("said")
        return [job.failed_reason, job.worker_version, job.stacktrace is not None]

    async with mq, mq.worker(version="v1"):
        run = await order.start()
        await reaches(run, "suspended")
        await run.signal("said")
        assert await run.result(PATIENCE) == ["RuntimeError: first", "v1", True]
