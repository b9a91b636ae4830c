"""The budget of a run applies in every executor: log lines, progress, data, and the time of a rate limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from glidemq_async import Job, JobBudget, RateLimited
from glidemq_async.executors import Executor, InlineExecutor, SubprocessExecutor, ThreadExecutor
from glidemq_async.jobs.snapshot import meter_of
from tests.executors import hostile
from tests.support.helpers import AnyQueue, ended, job_events, worker_of

AnyJob = Job[Any, Any]
pytestmark = pytest.mark.only_on("memory")

EXECUTORS: dict[str, Callable[[], Executor]] = {
    "inline": InlineExecutor,
    "thread": lambda: ThreadExecutor(1),
    "subprocess": lambda: SubprocessExecutor(1),
}
everywhere = pytest.mark.parametrize("kind", EXECUTORS)


def handler_of(kind: str, plain: Callable[[AnyJob], Any], coroutine: Callable[[AnyJob], Any]) -> Any:
    return coroutine if kind == "inline" else plain


@everywhere
async def test_a_long_line_is_cut(queue: AnyQueue, kind: str) -> None:
    handler = handler_of(kind, hostile.log_a_long_line, hostile.log_a_long_line_later)
    async with worker_of(queue, handler, executor=EXECUTORS[kind]()):
        job = await ended(await queue.add("n", 900_000))
    [line] = await queue.get_job_logs(job.id)
    assert len(line) < 16_500
    assert line.endswith("… (cut, 900000 characters)")


@everywhere
async def test_lines_beyond_the_rate_wait(queue: AnyQueue, kind: str) -> None:
    handler = handler_of(kind, hostile.log_lines, hostile.log_lines_later)
    async with worker_of(queue, handler, executor=EXECUTORS[kind](), budget=JobBudget(log_lines=100)):
        seconds = await queue.add_and_wait("n", 700, wait_timeout=60)
    # 500 lines may come in one burst.
    assert seconds >= 1.9


async def test_bytes_beyond_the_rate_wait(queue: AnyQueue) -> None:
    async def update(job: AnyJob) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(4):
            await job.update_data("x" * 100_000)
        return loop.time() - began

    async with worker_of(queue, update, budget=JobBudget(bytes=20_000)):
        # The first write always passes. The second one waits until the budget has paid for the first.
        seconds = await queue.add_and_wait("n", wait_timeout=60)
    assert seconds >= 9


@everywhere
async def test_fast_progress_is_stored_in_part_and_always_with_the_last_value(queue: AnyQueue, kind: str) -> None:
    handler = handler_of(kind, hostile.report_fast, hostile.report_fast_later)
    async with worker_of(queue, handler, executor=EXECUTORS[kind](), budget=JobBudget(updates=2)):
        job = await ended(await queue.add("n", 300))
    assert job.progress == 299
    reported = [kind for kind, _ in await job_events(queue, job.id) if kind == "progress"]
    assert 10 <= len(reported) < 250


async def test_delayed_progress_is_stored_while_the_run_continues(queue: AnyQueue) -> None:
    release = asyncio.Event()

    async def work(job: AnyJob) -> None:
        for number in range(100):
            await job.update_progress(number)
        await release.wait()

    async with worker_of(queue, work, budget=JobBudget(updates=10)):
        job = await queue.add("n")
        async with asyncio.timeout(20):
            while job.progress != 99:
                await asyncio.sleep(0.01)
                await job.refresh()
        assert job.state == "active"
        release.set()
        await ended(job)


async def test_a_job_closes_the_gate_for_no_longer_than_its_budget_permits(queue: AnyQueue) -> None:
    runs: list[str] = []

    async def work(job: AnyJob) -> int:
        runs.append(job.id)
        if len(runs) == 1:
            raise RateLimited(1e9)
        return len(runs)

    async with worker_of(queue, work, budget=JobBudget(rest=0.2)):
        assert await queue.add_and_wait("n", wait_timeout=20) == 2


async def test_a_run_that_writes_nothing_has_no_meter(queue: AnyQueue) -> None:
    seen: list[Job[Any, Any]] = []

    async def work(job: AnyJob) -> None:
        seen.append(job)

    async with worker_of(queue, work):
        await queue.add_and_wait("n", wait_timeout=20)
    assert meter_of(seen[0]) is None


async def test_calls_of_users_have_no_budget(queue: AnyQueue) -> None:
    job = await queue.add("n", delay=60)
    await job.log("x" * 100_000)
    assert len((await queue.get_job_logs(job.id))[0]) == 100_000


@pytest.mark.parametrize("name", ["log_lines", "log_line", "updates", "bytes"])
def test_bad_budgets_are_refused(name: str) -> None:
    bad: Any = {name: 0}
    with pytest.raises(ValueError, match=name):
        JobBudget(**bad)
    with pytest.raises(ValueError, match="rest"):
        JobBudget(rest=-1)
