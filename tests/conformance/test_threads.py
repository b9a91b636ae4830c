"""Plain functions run in threads. The loop stays free, and a thread that does not end keeps its slot until it does."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from typing import Any

import pytest

from glidemq_async import JobFailed, UnrecoverableError
from tests.support.helpers import AnyJob, AnyQueue, Heard, ended, soon, worker_of


@pytest.mark.everywhere
async def test_a_plain_function_runs_in_a_thread(queue: AnyQueue) -> None:
    def work(job: AnyJob) -> list[Any]:
        return [job.data, threading.current_thread() is threading.main_thread()]

    async with worker_of(queue, work, concurrency=4):
        assert await queue.add_and_wait("n", 1, wait_timeout=10) == [1, False]


async def test_threads_run_concurrently_and_the_loop_stays_free(queue: AnyQueue) -> None:
    loop, together, go = asyncio.get_running_loop(), threading.Barrier(3, timeout=10), threading.Event()
    met = asyncio.Event()

    def meet(job: AnyJob) -> bool:
        together.wait()
        loop.call_soon_threadsafe(met.set)
        return go.wait(10)

    async with worker_of(queue, meet, concurrency=3):
        jobs = await queue.add_bulk([("n", number) for number in range(3)])
        await soon(met.wait())
        go.set()
        assert [await job.result(10) for job in jobs] == [True] * 3


async def test_an_exception_in_a_thread_is_the_failure(queue: AnyQueue) -> None:
    def fail(job: AnyJob) -> None:
        raise UnrecoverableError("in a thread") if job.data else ValueError("in a thread")

    async with worker_of(queue, fail):
        job = await ended(await queue.add("n", attempts=2))
        assert (job.failed_reason, job.attempts_made) == ("ValueError: in a thread", 2)
        job = await ended(await queue.add("n", True, attempts=2))
        assert (job.failed_reason, job.attempts_made) == ("UnrecoverableError: in a thread", 1)


async def test_a_timeout_abandons_the_thread(queue: AnyQueue) -> None:
    seen: list[bool] = []

    def slow(job: AnyJob) -> str:
        seen.append(job.abort.wait_in_thread(10))
        return "too late"

    async with worker_of(queue, slow):
        with pytest.raises(JobFailed, match=r"timeout of 0\.1 s"):
            await (await queue.add("n", timeout=0.1)).result(10)
    assert seen == [True]


async def test_an_abandoned_thread_frees_its_slot_when_it_ends(queue: AnyQueue) -> None:
    """No worker polls here. The end of the thread itself must start the next job."""
    release = threading.Event()

    def stuck(job: AnyJob) -> str:
        if job.data == "stuck":
            release.wait(20)
        return "done"

    async with worker_of(queue, stuck, concurrency=1):
        first = await queue.add("n", "stuck", timeout=0.1)
        assert (await ended(first)).state == "failed"
        second = await queue.add("n", "next")
        await asyncio.sleep(0.1)
        assert await second.get_state() == "waiting"  # the only slot is still taken
        release.set()
        assert await second.result(5) == "done"


async def test_a_revoked_thread_is_asked_to_stop(queue: AnyQueue) -> None:
    started, stopped = threading.Event(), threading.Event()

    def patient(job: AnyJob) -> None:
        started.set()
        if job.abort.wait_in_thread(10):
            stopped.set()

    async with worker_of(queue, patient) as worker:
        failed = Heard(worker, "failed")
        job = await queue.add("n")
        await soon(asyncio.to_thread(started.wait, 10))
        await job.revoke()
        await failed.next()
        assert await asyncio.to_thread(stopped.wait, 10)
        await job.refresh()
        assert (job.state, job.failed_reason) == ("failed", "revoked")


async def test_a_thread_that_does_not_end_is_abandoned_at_shutdown(queue: AnyQueue) -> None:
    release = threading.Event()
    started = threading.Event()

    def deaf(job: AnyJob) -> None:
        started.set()
        release.wait(20)

    worker = worker_of(queue, deaf, shutdown_timeout=0)
    await worker.start()
    job = await queue.add("n")
    await soon(asyncio.to_thread(started.wait, 10))
    began = time.monotonic()
    await soon(worker.close())
    assert time.monotonic() - began < 6
    assert await job.get_state() == "waiting"
    release.set()


async def test_context_variables_reach_the_thread(queue: AnyQueue) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")
    tenant.set("acme")

    def look(job: AnyJob) -> str:
        return tenant.get()

    async with worker_of(queue, look):
        assert await queue.add_and_wait("n", wait_timeout=10) == "acme"


async def test_a_plain_function_that_returns_a_coroutine_fails_with_advice(queue: AnyQueue) -> None:
    async def real(job: AnyJob) -> int:
        return 1

    async with worker_of(queue, lambda job: real(job)):
        with pytest.raises(JobFailed, match="coroutine function"):
            await queue.add_and_wait("n", wait_timeout=10)
