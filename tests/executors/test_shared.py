"""One executor of several workers is started once and stopped after the last of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from glidemq_async import BatchOptions, ExecutorError, GlideMQ, Job, Queue, Worker
from glidemq_async.executors import InlineExecutor, SubprocessExecutor
from glidemq_async.executors.protocol import MayBreak
from glidemq_async.executors.sharing import ExecutorUse
from glidemq_async.storage import MemoryStorage, Storage
from tests.executors import handlers
from tests.executors.processes import gone
from tests.support.helpers import soon


class Counting(InlineExecutor):
    """Counts its starts and stops. It can be asked to fail or to wait."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.freed: Callable[[], None] = lambda: None
        self.failing = False
        self.entered, self.may_start = asyncio.Event(), asyncio.Event()
        self.may_start.set()

    async def start(self, freed: Callable[[], None]) -> None:
        self.entered.set()
        await self.may_start.wait()
        if self.failing:
            raise ExecutorError("not today")
        self.freed = freed
        self.states.append("started")

    async def stop(self, grace: float) -> None:
        self.states.append("stopped")


class Breaking(Counting):
    """Breaks when the test wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[Callable[[Exception], None]] = []

    def when_broken(self, report: Callable[[Exception], None]) -> None:
        assert "started" not in self.states[-1:]
        self.reports.append(report)


@pytest.fixture
async def storage() -> AsyncIterator[Storage]:
    async with MemoryStorage() as opened:
        yield opened


async def echo(job: Job[Any, Any]) -> Any:
    return job.data


def worker_of(
    queue: str, storage: str | Storage, executor: Any, handler: Any = echo, **options: Any
) -> Worker[Any, Any]:
    return Worker(queue, handler, storage, executor=executor, handle_signals=False, **options)


async def test_a_shared_executor_is_stopped_after_its_last_worker(storage: Storage) -> None:
    executor = Counting()
    first, second = (worker_of(name, storage, executor) for name in ("a", "b"))
    async with Queue[Any, Any]("b", storage) as queue:
        async with second:
            async with first:
                assert executor.states == ["started"]
            assert executor.states == ["started"]
            assert await queue.add_and_wait("n", 1, wait_timeout=10) == 1
        assert executor.states == ["started", "stopped"]
        async with worker_of("b", storage, executor):
            assert await queue.add_and_wait("n", 2, wait_timeout=10) == 2
    assert executor.states == ["started", "stopped"] * 2


async def test_two_queues_share_one_pool_of_processes(storage: Storage) -> None:
    executor = SubprocessExecutor(1)
    async with AsyncExitStack() as opened:
        queues = [await opened.enter_async_context(Queue[Any, Any](name, storage)) for name in ("a", "b")]
        workers = [worker_of(queue.name, storage, executor, handlers.pid) for queue in queues]
        pids: list[int] = []
        for worker in workers:
            await worker.start()
        try:
            pids = [await queue.add_and_wait("n", wait_timeout=20) for queue in queues]
            await workers[0].close()
            pids.append(await queues[1].add_and_wait("n", wait_timeout=20))
        finally:
            await asyncio.gather(*(worker.close() for worker in workers))
    assert len(pids) == 3
    assert len(set(pids)) == 1
    await gone(*pids)


async def test_workers_that_start_concurrently_start_a_shared_executor_once(storage: Storage) -> None:
    executor = Counting()
    executor.may_start.clear()
    workers = [
        worker_of(name, storage, executor, batch=batch) for name, batch in (("a", None), ("b", BatchOptions(size=2)))
    ]
    starting = [asyncio.create_task(worker.start()) for worker in workers]
    await soon(executor.entered.wait())
    executor.may_start.set()
    await soon(asyncio.gather(*starting))
    await asyncio.gather(*(worker.close() for worker in workers))
    assert executor.states == ["started", "stopped"]


async def test_a_cancelled_start_does_not_stop_the_start_for_another_worker(storage: Storage) -> None:
    executor = Counting()
    executor.may_start.clear()
    workers = [worker_of(name, storage, executor) for name in ("a", "b")]
    first, second = (asyncio.create_task(worker.start()) for worker in workers)
    await soon(executor.entered.wait())
    first.cancel()
    await asyncio.wait([first])
    executor.may_start.set()
    await soon(second)
    assert executor.states == ["started"]
    await asyncio.gather(*(worker.close() for worker in workers))
    assert executor.states == ["started", "stopped"]


async def test_a_failed_start_can_be_repeated(storage: Storage) -> None:
    executor = Counting()
    executor.failing = True
    worker = worker_of("a", storage, executor)
    with pytest.raises(ExecutorError, match="not today"):
        await worker.start()
    executor.failing = False
    async with worker:
        assert executor.states == ["started"]
    assert executor.states == ["started", "stopped"]


async def test_all_workers_of_a_shared_executor_are_notified_of_free_slots() -> None:
    executor, heard = Counting(), list[str]()
    uses = [ExecutorUse(executor, lambda _: None) for _ in range(2)]
    for number, use in enumerate(uses):
        await use.start(partial(heard.append, f"use-{number}"))
    executor.freed()
    await uses[0].stop(0.0)
    executor.freed()
    await uses[1].stop(0.0)
    await uses[1].stop(0.0)
    assert heard == ["use-0", "use-1", "use-1"]
    assert executor.states == ["started", "stopped"]


def test_workers_of_two_loops_cannot_share_an_executor() -> None:
    executor = Counting()

    async def other() -> None:
        await worker_of("b", "memory://", executor).run(until_empty=True)

    async def main() -> None:
        async with worker_of("a", "memory://", executor):
            with pytest.raises(RuntimeError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, other())

    asyncio.run(main())
    assert executor.states == ["started", "stopped"]
    asyncio.run(other())
    assert executor.states == ["started", "stopped"] * 2


async def test_tasks_of_two_queues_can_share_an_executor(storage: Storage) -> None:
    app, executor = GlideMQ(storage), Counting()

    async def double(n: int) -> int:
        return 2 * n

    tasks = [app.task(name=queue, queue=queue, executor=executor)(double) for queue in ("a", "b")]
    async with app, app.worker(handle_signals=False):
        assert [await (await task.add(n)).result(20) for n, task in enumerate(tasks, 1)] == [2, 4]
        assert executor.states == ["started"]
    assert executor.states == ["started", "stopped"]


class Meeting(Counting):
    """One of two executors. Neither has started before both have begun to start."""

    async def start(self, freed: Callable[[], None]) -> None:
        self.entered.set()
        assert self.other is not None
        try:
            await soon(self.other.entered.wait())
            if self.failing:
                raise ExecutorError("not today")
            await self.may_start.wait()
        except asyncio.CancelledError:
            self.states.append("cancelled")
            raise
        self.states.append("started")

    other: Counting | None = None


def two_tiers(storage: Storage) -> tuple[GlideMQ, Meeting, Meeting]:
    app, one, two = GlideMQ(storage), Meeting(), Meeting()
    one.other, two.other = two, one

    async def double(n: int) -> int:
        return 2 * n

    for number, tier in enumerate((one, two)):
        app.task(name=f"task-{number}", executor=tier)(double)
    return app, one, two


async def test_the_executors_of_a_queue_start_together(storage: Storage) -> None:
    app, one, two = two_tiers(storage)
    async with app.worker(handle_signals=False):
        assert one.states == two.states == ["started"]
    assert one.states == two.states == ["started", "stopped"]


@pytest.mark.parametrize("already", [False, True], ids=["starting", "started"])
async def test_an_executor_that_fails_ends_the_others(storage: Storage, already: bool) -> None:
    app, one, two = two_tiers(storage)
    two.failing = True
    if not already:
        one.may_start.clear()
    with pytest.raises(ExecutorError, match="not today"):
        await soon(app.worker(handle_signals=False).start())
    assert one.states in (["cancelled"], ["started", "stopped"])
    assert one.states == ["cancelled"] or already
    assert two.states == []


async def test_a_broken_executor_stops_the_workers_that_use_it_and_no_others(storage: Storage) -> None:
    executor = Breaking()
    assert isinstance(executor, MayBreak)
    closed, batches, plain, later = (
        worker_of(name, storage, executor, **options)
        for name, options in (("a", {}), ("b", {"batch": BatchOptions(size=2)}), ("c", {}), ("d", {}))
    )
    async with closed, plain, batches:
        await closed.close()
        (report,) = executor.reports
        error = ExecutorError("out of order")
        report(error)
        assert [worker.broken for worker in (closed, batches, plain, later)] == [None, error, error, None]
    # A use that begins after the end of all others starts the executor again.
    async with later:
        assert executor.states == ["started", "stopped", "started"]
        executor.reports[-1](error)
        assert later.broken is error
