"""`close()` during `start()`: nothing works after `close()` has returned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from glidemq_async import GlideMQ, Queue, QueueClosed, Worker, WorkerPool
from glidemq_async.tasks.app_worker import AppWorker
from glidemq_async.worker.lifecycle import Runs
from tests.support.helpers import echo, soon
from tests.support.hooked_storage import HookedStorage

#: Calls that the start of a worker makes, in order; `subscribe` is the last.
STEPS = ("openQueue", "renewLeases", "subscribe")


class Held(HookedStorage):
    """A storage that delays the reply of one of the calls that a start makes."""

    def __init__(self) -> None:
        super().__init__()
        self.held = ""
        self.reached = asyncio.Event()

    async def _delay(self, step: str) -> None:
        if step == self.held:
            self.reached.set()
            await asyncio.Event().wait()

    async def after_call(self, function: str, reply: object) -> None:
        await self._delay(function)

    async def before_subscribe(self, channel: str) -> None:
        if ":wake:" in channel:
            await self._delay("subscribe")


def worker_of(storage: Held) -> Runs:
    return Worker[Any, Any]("q", echo, storage, handle_signals=False)


def pool_of(storage: Held) -> Runs:
    workers = [Worker[Any, Any](name, echo, storage, handle_signals=False) for name in ("p", "q")]
    return WorkerPool(workers, handle_signals=False)


def app_worker_of(storage: Held) -> AppWorker:
    mq = GlideMQ(storage, queue="q")

    @mq.task
    async def work() -> None: ...

    return mq.worker(handle_signals=False)


KINDS = pytest.mark.parametrize("made", [worker_of, pool_of, app_worker_of])


@asynccontextmanager
async def starting(made: Callable[[Held], Runs], step: str) -> AsyncGenerator[tuple[Runs, asyncio.Task[None], Held]]:
    async with Held() as storage:
        runs = made(storage)
        storage.held = step
        start = asyncio.create_task(runs.start())
        await soon(storage.reached.wait())
        yield runs, start, storage


def parts_of_workers() -> list[str]:
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith(("ClaimLoop", "Sweeper", "OutboxRelay", "Worker"))]


@KINDS
@pytest.mark.parametrize("step", STEPS)
async def test_a_close_during_the_start_ends_the_start(made: Callable[[Held], Runs], step: str) -> None:
    async with starting(made, step) as (runs, start, storage):
        await soon(runs.close())
        assert start.done(), "the start must release its resources before close() returns"
        with pytest.raises(QueueClosed, match="closed"):
            await start
        assert not parts_of_workers()
        storage.held = ""
        async with Queue[Any, Any]("q", storage) as queue:
            await queue.add("n", 1)
            assert await queue.get_workers() == []
        await soon(runs.close())
        with pytest.raises(QueueClosed, match="create a new one"):
            await runs.start()


@KINDS
async def test_a_run_returns_when_the_worker_is_closed_during_its_start(made: Callable[[Held], Runs]) -> None:
    async with Held() as storage:
        runs = made(storage)
        storage.held = "renewLeases"
        run = asyncio.create_task(runs.run())
        await soon(storage.reached.wait())
        await soon(runs.close())
        await soon(run)
        assert not parts_of_workers()


@KINDS
async def test_every_start_that_waits_for_another_one_is_refused_too(made: Callable[[Held], Runs]) -> None:
    async with starting(made, "renewLeases") as (runs, start, _):
        second = asyncio.create_task(runs.start())
        await asyncio.sleep(0)
        await soon(runs.close())
        for each in (start, second):
            with pytest.raises(QueueClosed):
                await each


async def test_closing_cancels_no_task_of_the_caller() -> None:
    async with starting(worker_of, "subscribe") as (runs, start, _):
        await soon(runs.close())
        with pytest.raises(QueueClosed):
            await start
        assert start.cancelling() == 0
        assert not start.cancelled()


async def test_a_start_that_its_caller_cancelled_can_be_repeated() -> None:
    async with starting(worker_of, "subscribe") as (runs, start, storage):
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        storage.held = ""
        await soon(runs.start())
        async with Queue[Any, Any]("q", storage) as queue:
            assert await queue.add_and_wait("n", "works", wait_timeout=5) == "works"
        await soon(runs.close())
