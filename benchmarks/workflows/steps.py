"""Steps and replays: the server's time for a step, and the time in which a resumed run continues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from benchmarks.meter import percentile
from benchmarks.server import ServerCost, connected
from benchmarks.workflows.figures import Figure
from glidemq_async import GlideMQ, Job, workflows
from glidemq_async.tasks.workflows import RunHandle

QUEUE: Final = "steps"
ROUNDS: Final = 30
WORKERS: Final = 4
SUSPENDED: Final = 1_000
REST: Final = 0.01
"""Seconds before a measured call, in which the worker becomes idle."""


async def measure(url: str, steps: int) -> list[Figure]:
    """Return the figures of `steps` recorded steps, of warm runs, and of the replay of 0, 10 and 1,000 steps."""
    found = [await _record(url, steps)]
    for recorded, most in ((0, None), (10, None), (1_000, 20.0)):
        found.append(await _wake(url, recorded, most))
    return [*found, *await _idle_and_warm(url, 1_000), *await _shares(url)]


# The signals come one after another, so all workers are idle at each of them.
async def _shares(url: str) -> list[Figure]:
    """Return the share of resumed runs that start again, and the time until runs continue, with idle workers."""
    mq: GlideMQ[Any] = GlideMQ(url, queue=QUEUE)
    continued: dict[str, asyncio.Future[float]] = {}
    starts = 0

    @mq.workflow
    async def wait() -> None:
        nonlocal starts
        starts += 1
        signal = await workflows.receive("go")
        continued[signal.data].set_result(time.perf_counter())

    taken: list[float] = []
    async with mq, AsyncExitStack() as workers:
        for _ in range(WORKERS):
            await workers.enter_async_context(mq.worker(concurrency=SUSPENDED // WORKERS))
        runs = [await wait.start() for _ in range(SUSPENDED)]
        for run in runs:
            await _until_suspended(run)
        for number, run in enumerate(runs):
            key = str(number)
            end = continued[key] = asyncio.get_running_loop().create_future()
            began = time.perf_counter()
            await run.signal("go", key)
            taken.append((await end - began) * 1e3)
            await run.result(10)
        await mq.queue(QUEUE).obliterate(force=True)
    who = f"{SUSPENDED:,} runs that {WORKERS} idle workers keep"
    again = (starts - SUSPENDED) / SUSPENDED
    return [
        Figure(f"{who}: share of runs that start again after a signal", again, "share", most=0.05),
        Figure(f"{who}: from a signal to the line after `receive`, p50", percentile(taken, 50), "ms"),
    ]


async def _record(url: str, steps: int) -> Figure:
    mq: GlideMQ[Any] = GlideMQ(url, queue=QUEUE)

    @mq.step
    async def note(number: int) -> int:
        return number

    @mq.workflow
    async def many(first: int) -> None:
        await asyncio.gather(*(note(first + number) for number in range(50)))

    async with connected(url) as wire, mq:
        await many.task.add_many([(first,) for first in range(0, steps, 50)])
        before = await ServerCost.read(wire)
        await mq.run_worker(until_empty=True, concurrency=10, handle_signals=False)
        cost = (await ServerCost.read(wire)).since(before)
        await mq.queue(QUEUE).obliterate(force=True)
    # The claims and settles of the runs are included, one of each for 50 steps.
    return Figure("server time of a recorded step", cost.in_functions / steps * 1e6, "µs", most=15)


# A processor of a shared host changes its speed within a second, so adds and signals take turns. The rest before a
# signal is the one before an add. After a longer one, the caches of the processor have forgotten both programs, and
# each call takes longer. So all runs are suspended before the first signal.
async def _idle_and_warm(url: str, recorded: int) -> list[Figure]:
    """Return the latency of an idle worker, of the wake of a warm run in the same worker, and their ratio."""
    mq: GlideMQ[Any] = GlideMQ(url, queue=QUEUE)
    begun: dict[str, asyncio.Future[float]] = {}

    @mq.step
    async def note(number: int) -> int:
        return number

    @mq.task
    async def start(key: str) -> None:
        begun[key].set_result(time.perf_counter())

    @mq.workflow
    async def wait() -> None:
        for number in range(recorded):
            await note(number)
        signal = await workflows.receive("go")
        begun[signal.data].set_result(time.perf_counter())

    async def signal(key: str, run: RunHandle[None]) -> Job[Any, None]:
        await run.signal("go", key)
        return run.job

    async def taken_by(key: str, call: Callable[[str], Awaitable[Job[Any, None]]]) -> float:
        """Return the milliseconds from a call until its handler or its function continues."""
        begun[key] = asyncio.get_running_loop().create_future()
        await asyncio.sleep(REST)
        began = time.perf_counter()
        job = await call(key)
        taken = (await begun[key] - began) * 1e3
        await job.result(10)
        return taken

    idle: list[float] = []
    warm: list[float] = []
    async with mq, mq.worker(warm_runs=ROUNDS, concurrency=ROUNDS):
        runs = [await wait.start() for _ in range(ROUNDS)]
        for run in runs:
            await _until_suspended(run)
        for number, run in enumerate(runs):
            idle.append(await taken_by(f"idle {number}", start.add))
            warm.append(await taken_by(f"warm {number}", partial(signal, run=run)))
        await mq.queue(QUEUE).obliterate(force=True)
    name = f"from a warm run: a signal to the line after `receive`, {recorded:,} recorded steps, p50"
    ratio = percentile(warm, 50) / percentile(idle, 50)
    return [
        Figure("from an add to the handler of an idle worker, p50", percentile(idle, 50), "ms"),
        Figure(name, percentile(warm, 50), "ms"),
        Figure("the same of a warm run, to the latency of an idle worker", ratio, "ratio", most=1.5),
    ]


async def _until_suspended(run: RunHandle[None]) -> None:
    async for update in run.job.watch():
        if update.state == "suspended":
            return


async def _wake(url: str, recorded: int, most: float | None) -> Figure:
    mq: GlideMQ[Any] = GlideMQ(url, queue=QUEUE)
    continued: dict[str, asyncio.Future[float]] = {}

    @mq.step
    async def note(number: int) -> int:
        return number

    @mq.workflow
    async def wait() -> None:
        for number in range(recorded):
            await note(number)
        signal = await workflows.receive("go")
        continued[signal.data].set_result(time.perf_counter())

    taken: list[float] = []
    async with mq, mq.worker(warm_runs=0):
        for number in range(ROUNDS):
            key = str(number)
            end = continued[key] = asyncio.get_running_loop().create_future()
            run = await wait.start()
            await _until_suspended(run)
            await asyncio.sleep(REST)
            began = time.perf_counter()
            await run.signal("go", key)
            taken.append((await end - began) * 1e3)
            await run.result(10)
        await mq.queue(QUEUE).obliterate(force=True)
    name = f"from a signal to the line after `receive`, {recorded:,} recorded steps, p50"
    return Figure(name, percentile(taken, 50), "ms", most=most)
