"""The thread executor: its own limit, and the calls that a plain function may make."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from glidemq_async import LeaseLost
from glidemq_async.executors import FunctionCall, ThreadExecutor
from glidemq_async.jobs.context import current_job
from tests.executors.elsewhere import time_out_elsewhere
from tests.support.helpers import AnyJob, AnyQueue, Heard, ended, soon, worker_of


@pytest.mark.everywhere
async def test_a_plain_function_writes_log_lines_and_progress(queue: AnyQueue) -> None:
    def work(job: AnyJob) -> Any:
        job.sync.log("one")
        job.sync.update_progress(50)
        job.sync.update_data("changed")
        job.sync.heartbeat()
        return job.data

    async with worker_of(queue, work):
        job = await ended(await queue.add("n", "data"))
    assert (job.return_value, job.progress, job.data) == ("changed", 50, "changed")
    assert await queue.get_job_logs(job.id) == ["one"]


@pytest.mark.only_on("memory")
async def test_errors_of_calls_reach_the_function(queue: AnyQueue) -> None:
    caught: list[str] = []

    def work(job: AnyJob) -> None:
        bad: Any = 7
        calls: list[Callable[[], None]] = [lambda: job.sync.log(bad), lambda: job.sync.update_progress(object())]
        for call in calls:
            try:
                call()
            except TypeError as error:
                caught.append(str(error))

    async with worker_of(queue, work):
        await ended(await queue.add("n"))
    assert caught[0] == "a log line must be a str, not 7"
    assert "progress" in caught[1] or "cannot be encoded" in caught[1]


@pytest.mark.only_on("memory")
async def test_a_waiting_call_is_refused_in_the_loop(queue: AnyQueue) -> None:
    async def work(job: AnyJob) -> None:
        job.sync.log("never")

    async with worker_of(queue, work):
        job = await ended(await queue.add("n"))
    assert "await the method itself" in (job.failed_reason or "")
    assert await queue.get_job_logs(job.id) == []


@pytest.mark.only_on("memory")
async def test_a_thread_that_lost_its_job_gets_an_error(queue: AnyQueue) -> None:
    """The job was revoked, and its thread cannot be interrupted."""
    started, release, informed = threading.Event(), threading.Event(), threading.Event()

    def work(job: AnyJob) -> None:
        started.set()
        release.wait(20)
        try:
            job.sync.log("too late")
        except LeaseLost:
            informed.set()

    async with worker_of(queue, work):
        job = await queue.add("n")
        assert await asyncio.to_thread(started.wait, 10)
        await job.revoke()
        await ended(job)
        release.set()
        assert await asyncio.to_thread(informed.wait, 10)
    assert await queue.get_job_logs(job.id) == []


@pytest.mark.only_on("memory")
async def test_the_limit_of_threads_applies_and_timeouts_begin_in_them(queue: AnyQueue) -> None:
    running, most = 0, 0
    lock, step = threading.Lock(), threading.Semaphore(0)

    def work(job: AnyJob) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        step.acquire(timeout=20)
        with lock:
            running -= 1
        return "done"

    async with worker_of(queue, work, concurrency=6, executor=ThreadExecutor(2)) as worker:
        active = Heard(worker, "active")
        first = await queue.add_bulk([("n", number) for number in range(2)])
        # It waits for a thread for longer than its timeout.
        third = await queue.add("n", timeout=1)
        assert {(await active.next())[0].id for _ in range(3)} == {each.id for each in (*first, third)}
        await time_out_elsewhere(queue, 1)
        assert await third.get_state() == "active"
        step.release(3)
        assert await third.result(10) == "done"
        for job in first:
            await job.result(10)
    assert most == 2


@pytest.mark.only_on("memory")
async def test_an_abandoned_thread_counts_against_the_limit(queue: AnyQueue) -> None:
    release, second = threading.Event(), threading.Event()

    def work(job: AnyJob) -> None:
        (second.set if job.data else lambda: release.wait(20))()

    executor = ThreadExecutor(1)
    async with worker_of(queue, work, concurrency=3, executor=executor):
        assert (await ended(await queue.add("n", False, timeout=0.1))).state == "failed"
        assert executor.occupied == 1
        job = await queue.add("n", True)
        assert not second.is_set()
        release.set()
        await soon(job.result(10))
    assert executor.occupied == 0


@pytest.mark.only_on("memory")
async def test_a_thread_that_cannot_be_started_uses_no_slot(queue: AnyQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    refused: list[str] = []

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name.startswith("glidemq-job") and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    def work(job: AnyJob) -> Any:
        return job.data

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    async with worker_of(queue, work):
        first = await ended(await queue.add("n", 1))
        assert first.failed_reason == "RuntimeError: can't start new thread"
        assert await soon((await queue.add("n", 2)).result()) == 2


@pytest.mark.only_on("memory")
async def test_a_call_with_values_runs_in_a_thread(queue: AnyQueue) -> None:
    executor = ThreadExecutor(1)
    await executor.start(lambda: None)
    job = await queue.add("n", delay=600)
    assert await executor.run(FunctionCall(divmod, (7, 2), {}), job, None) == (3, 1)
    await executor.stop(0)
    with pytest.raises(RuntimeError):
        current_job()


@pytest.mark.only_on("memory")
async def test_several_workers_can_use_a_thread_executor_one_after_the_other(queue: AnyQueue) -> None:
    executor = ThreadExecutor(2)
    release = threading.Event()

    def work(job: AnyJob) -> Any:
        return release.wait(30) if job.data == "hang" else job.data

    for turn in range(3):
        async with worker_of(queue, work, executor=executor):
            jobs = [await queue.add("n", number) for number in range(4)]
            assert [(await ended(job)).return_value for job in jobs] == [0, 1, 2, 3]
            hanging = await queue.add("n", "hang", timeout=0.1)
            assert (await ended(hanging)).state == "failed"
            assert executor.occupied == 1, turn
    release.set()


def forgetful(job: AnyJob) -> None:
    job.update_progress(5)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]


def handed_over(job: AnyJob, loop: asyncio.AbstractEventLoop) -> None:
    asyncio.run_coroutine_threadsafe(job.update_progress(7), loop)
    job.sync.log("a line")


@pytest.mark.parametrize("executor", ["thread", "subprocess"])
async def test_a_call_that_a_plain_function_does_not_await_fails_the_job(queue: AnyQueue, executor: str) -> None:
    async with worker_of(queue, forgetful, executor=executor):
        job = await ended(await queue.add("n"))
    assert job.failed_reason == (
        "TypeError: job.update_progress(...) was called without await in a plain function, so nothing was sent; "
        "call job.sync.update_progress(...)"
    )


async def test_a_call_that_a_thread_passes_to_the_loop_is_made(queue: AnyQueue) -> None:
    loop = asyncio.get_running_loop()
    async with worker_of(queue, lambda job: handed_over(job, loop)):
        job = await ended(await queue.add("n"))
    assert job.state == "completed"
    assert await queue.get_job_logs(job.id) == ["a line"]
