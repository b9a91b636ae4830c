"""Pushes are lost, and workers die with a push: no job is lost, and none runs twice under a valid lease."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack
from itertools import cycle
from signal import SIGSTOP

import pytest

from glidemq_async import Job, JobOptions, Queue, Worker
from glidemq_async.storage.redis.library import Library, shipped
from tests.crash.size import scaled, seconds
from tests.crash.test_lost_replies import Line, Runs, line
from tests.support.servers import standalone

pytestmark = pytest.mark.crash
PUSHES = scaled(80)
KILLS = max(4, min(8, scaled(4)))
LEASE = 3.0
KINDS = (JobOptions(), JobOptions(priority=1), JobOptions(lifo=True), JobOptions(key="k"))
_MISSED = "  local missed = unbroken and read_missed(base, caller, reply, flags)\n"
#: The library without the repetition of lost pushes.
FORGETFUL = Library(shipped().text.replace(_MISSED, "  local missed = nil\n"))


async def add_to_idle_worker(way: Line, pushes: int, draw: random.Random, runs: Runs, patience: float) -> int:
    """Add jobs one by one to an idle worker behind the proxy, and lose half of the pushes. Return the number of jobs.

    It adds more than `pushes` jobs if few pushes were lost: a worker that is not idle yet gets its job from a call.
    """
    number = 0
    async with (
        way.direct() as storage,
        Queue[int, int]("pushes", storage) as queue,
        way.through_proxy() as through,
        # Neither a poll nor the end of a lease finds a stranded job during this test.
        Worker("pushes", runs, through, concurrency=2, lock_duration=600, poll_interval=600, handle_signals=False),
    ):
        while number < pushes or way.proxy.lost_pushes <= pushes / 5:
            await asyncio.sleep(0.01)
            if draw.random() < 0.5:
                way.proxy.lose_push()
            job = await queue.add("n", number, draw.choice(KINDS))
            assert await job.result(patience) == 1
            number += 1
    return number


@pytest.mark.timeout(seconds(60))
async def test_a_lost_push_neither_loses_nor_repeats_a_job() -> None:
    draw, runs = random.Random(5), Runs()
    async with line(draw) as way:
        jobs = await add_to_idle_worker(way, PUSHES, draw, runs, 30)
        assert runs == dict.fromkeys(range(jobs), 1)
        async with way.direct() as storage, Queue[int, int]("pushes", storage) as queue:
            completed = [job async for job in queue.iter_jobs("completed")]
            assert {(job.return_value, job.fence, job.stalled_count) for job in completed} == {(1, 1, 0)}
            assert await queue.check() == []


@pytest.mark.timeout(seconds(60))
async def test_a_lost_push_strands_a_job_that_the_next_call_does_not_return() -> None:
    draw, runs = random.Random(6), Runs()
    async with line(draw, FORGETFUL) as way:
        with pytest.raises(TimeoutError):
            await add_to_idle_worker(way, PUSHES, draw, runs, 5)


async def start_idle(url: str, queue: str, point: str) -> Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.crash.idle_worker", url, queue, str(LEASE), point), stdout=PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"idle\n"
    return process


async def die_with_push(process: Process, queue: Queue[int, int], point: str, kind: JobOptions) -> Job[int, int]:
    """Add a job and let the worker to which it is pushed die: at the failpoint, or before it reads its socket."""
    if not point:
        process.send_signal(SIGSTOP)
    job = await queue.add("n", 1, kind)
    if not point:
        assert await job.get_state() == "active"
        process.kill()
    await process.wait()
    assert process.stdout is not None
    assert await process.stdout.read() == b""
    return job


async def successor_starts(url: str, job: Job[int, int]) -> float:
    """Run the job on another worker. Return the time that it took to start."""
    began, started = time.monotonic(), asyncio.Event()

    async def handler(job: Job[int, int]) -> int:
        started.set()
        return job.fence

    async with Worker(job.queue, handler, url, lock_duration=LEASE, handle_signals=False):
        await asyncio.wait_for(started.wait(), 5 * LEASE)
        pause = time.monotonic() - began
        assert await job.result(5) == 2
    return pause


@pytest.mark.timeout(seconds(90))
@pytest.mark.parametrize("point", ["", "push.before_start"], ids=["push in the socket", "push received"])
async def test_the_job_of_a_worker_that_died_with_a_push_runs_after_the_lease(point: str) -> None:
    async with standalone(unix=True) as server, AsyncExitStack() as stack:
        url = f"unix://{server.path}"
        queues = [await stack.enter_async_context(Queue[int, int](f"q{number}", url)) for number in range(KILLS)]
        processes = await asyncio.gather(*(start_idle(url, queue.name, point) for queue in queues))
        jobs = [
            await die_with_push(process, queue, point, kind)
            for process, queue, kind in zip(processes, queues, cycle(KINDS), strict=False)
        ]
        pauses = await asyncio.gather(*(successor_starts(url, job) for job in jobs))
        assert max(pauses) < LEASE + 2
        for job, queue in zip(jobs, queues, strict=True):
            await job.refresh()
            assert (job.state, job.stalled_count) == ("completed", 1)
            assert await queue.check() == []
