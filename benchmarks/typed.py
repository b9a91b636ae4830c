"""The rate at which one worker process empties a full queue of typed tasks. Compared with the bare worker, it shows
the cost of tasks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from glidemq_async import Depends, GlideMQ, Job, Middleware, Task
from glidemq_async.tasks.task import AnyTask

from .bench import PAYLOAD, QUEUE, Bench, expect
from .draining import CONCURRENCY
from .meter import CostMeter, Rows


class Counting(Middleware):
    """Counts the runs."""

    runs = 0

    async def before_run(self, task: AnyTask, job: Job[Any, Any]) -> None:  # noqa: ARG002
        """Count one run."""
        self.runs += 1


async def session() -> AsyncIterator[list[str]]:
    """A dependency that is opened and closed for each job."""
    yield []


def _plain(app: GlideMQ) -> Task[..., None]:
    @app.task
    async def send(to: str, template: str, attempt: int = 1) -> None: ...

    return send


def _laden(app: GlideMQ) -> Task[..., None]:
    app.add_middleware(Counting())

    @app.task
    async def send(to: str, template: str, attempt: int = 1, db: list[str] = Depends(session)) -> None: ...

    return send


async def _drain(bench: Bench, row: str, app: GlideMQ, task: Task[..., None], jobs: int) -> Rows:
    errors: list[Exception] = []
    async with app:
        await task.add_many([PAYLOAD] * jobs)
        worker = app.worker(concurrency=CONCURRENCY, handle_signals=False)
        worker.on("error", errors.append)
        async with CostMeter(bench.wire) as meter:
            await worker.start()
            await worker.workers[0].until_empty()
        await worker.close()
        counts = await app.queue(QUEUE).get_job_counts()
    if errors:
        raise RuntimeError(f"the worker met {len(errors)} errors, the run is void") from errors[0]
    expect(row, counts["failed"] + counts["waiting"], 0)
    return {row: meter.metrics(jobs)}


async def drain_tasks(bench: Bench, jobs: int) -> Rows:
    """Drain tasks with three annotated arguments."""
    app = GlideMQ(bench.url, queue=QUEUE)
    return await _drain(bench, "drain, typed tasks", app, _plain(app), jobs)


async def drain_laden_tasks(bench: Bench, jobs: int) -> Rows:
    """Drain tasks with a middleware and a dependency that is opened for each job."""
    app = GlideMQ(bench.url, queue=QUEUE)
    return await _drain(bench, "drain, tasks with a dependency and middleware", app, _laden(app), jobs)
