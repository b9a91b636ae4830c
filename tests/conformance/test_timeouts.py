"""Timeouts: a run that takes too long is cancelled and fails."""

from __future__ import annotations

import asyncio
import time

import pytest

from glidemq_async import JobFailed
from glidemq_async.jobs.abort import AbortSignal, set_abort
from tests.support.helpers import AnyJob, AnyQueue, Gate, echo, ended, worker_of


@pytest.mark.everywhere
async def test_a_run_that_takes_too_long_is_cancelled_and_fails(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate):
        job = await queue.add("n", timeout=0.1)
        held = await gate.running()
        with pytest.raises(JobFailed, match=r"timeout of 0\.1 s") as caught:
            await job.result(10)
        assert caught.value.error_type == "TimeoutError"
        await gate.stopped()
        assert (held.abort.is_set(), held.abort.reason) == (True, "timeout")


async def test_an_awaited_task_of_the_handler_is_cancelled_by_the_timeout(queue: AnyQueue) -> None:
    async def with_a_thread(job: AnyJob) -> None:
        def work(stopped: AbortSignal) -> None:
            while not stopped.is_set():
                time.sleep(0.005)

        thread = asyncio.ensure_future(asyncio.to_thread(work, job.abort))
        try:
            await asyncio.shield(thread)
        finally:
            await asyncio.wait([thread], timeout=5)
            ended_in_time.append(thread.done())
            set_abort(job.abort, "over")

    ended_in_time: list[bool] = []
    async with worker_of(queue, with_a_thread):
        job = await ended(await queue.add("n", timeout=0.1))
    assert (job.failed_reason or "").startswith("TimeoutError")
    assert ended_in_time == [True]


async def test_a_timeout_is_a_failure_like_others(queue: AnyQueue) -> None:
    runs: list[int] = []

    async def slow_once(job: AnyJob) -> str:
        runs.append(job.attempts_made)
        if not job.attempts_made:
            await asyncio.Event().wait()
        return "done"

    async with worker_of(queue, slow_once):
        job = await queue.add("n", timeout=0.05, attempts=2)
        assert await job.result(10) == "done"
    assert runs == [0, 1]


async def test_a_run_within_its_timeout_is_not_affected(queue: AnyQueue) -> None:
    async with worker_of(queue, echo):
        assert await (await queue.add("n", 1, timeout=0.5)).result(10) == 1


async def test_the_message_of_a_timeout_raised_by_the_handler_is_kept(queue: AnyQueue) -> None:
    async def impatient(job: AnyJob) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    async with worker_of(queue, impatient):
        job = await ended(await queue.add("n", timeout=5))
    assert job.failed_reason == "TimeoutError"


async def test_cleanup_after_a_timeout_is_allowed(queue: AnyQueue) -> None:
    cleaned = asyncio.Event()

    async def tidy(job: AnyJob) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            await job.log("cleaned")
            cleaned.set()

    async with worker_of(queue, tidy):
        job = await ended(await queue.add("n", timeout=0.05))
    assert cleaned.is_set()
    assert (job.state, await queue.get_job_logs(job.id)) == ("failed", ["cleaned"])


async def test_a_job_after_a_timed_out_run_gets_its_slot(queue: AnyQueue) -> None:
    async def hang(job: AnyJob) -> str:
        if job.data:
            await asyncio.Event().wait()
        return "done"

    async with worker_of(queue, hang, concurrency=1):
        await queue.add("n", True, timeout=0.05)
        assert await (await queue.add("n", False)).result(10) == "done"
