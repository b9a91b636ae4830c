"""The lifespan of an app: entered before the first job of its workers, left after the last one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from glidemq_async import GlideMQ, QueueClosed
from glidemq_async.storage import Storage

PATIENCE = 10


async def test_state_exists_while_workers_run(storage: Storage, name: str) -> None:
    log: list[str] = []

    @asynccontextmanager
    async def lifespan(app: GlideMQ[int]) -> AsyncGenerator[int]:
        log.append(f"up with {len(app.tasks)}")
        async with asyncio.timeout(None):
            yield 41
        log.append("down")

    mq = GlideMQ(storage, queue=name, lifespan=lifespan)

    @mq.task
    async def answer() -> int:
        log.append("run")
        return mq.state + 1

    async with mq:
        with pytest.raises(RuntimeError, match="none of its workers runs in this process"):
            _ = mq.state
        job = await answer.add()
        assert log == [], "whoever only adds jobs needs no state"
        async with mq.worker(), mq.worker():
            assert await job.result(PATIENCE) == 42
        assert log == ["up with 1", "run", "down"]
        await mq.run_worker(until_empty=True)
        assert log[3:] == ["up with 1", "down"]


async def test_a_lifespan_that_fails_starts_nothing(storage: Storage, name: str) -> None:
    async def lifespan(_app: GlideMQ[None]) -> AsyncGenerator[None]:
        if mq.tasks:
            raise RuntimeError("no database")
        yield

    mq = GlideMQ(storage, queue=name, lifespan=lifespan)

    @mq.task
    async def work() -> None: ...

    async with mq:
        job = await work.add()
        with pytest.raises(RuntimeError, match="no database"):
            await mq.run_worker(until_empty=True)
        assert await job.get_state() == "waiting"
        assert await mq.queue(name).get_workers() == []
        await job.remove()


async def test_a_worker_whose_lifespan_failed_can_be_started_again(storage: Storage, name: str) -> None:
    attempts = 0

    async def lifespan(_app: GlideMQ[None]) -> AsyncGenerator[None]:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise RuntimeError("no database")
        yield

    mq = GlideMQ(storage, queue=name, lifespan=lifespan)

    @mq.task
    async def work() -> int:
        return 7

    async with mq:
        worker = mq.worker()
        with pytest.raises(RuntimeError, match="no database"):
            await worker.start()
        async with worker:
            assert await (await work.add()).result(PATIENCE) == 7


async def test_a_worker_of_the_app_that_could_not_start_reports_it_again(storage: Storage, name: str) -> None:
    def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    taken = await asyncio.start_server(accept, "127.0.0.1", 0)
    mq = GlideMQ(storage, queue=name)

    @mq.task
    async def work() -> None: ...

    async with mq, taken:
        worker = mq.worker(health_port=taken.sockets[0].getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            await worker.start()
        with pytest.raises(QueueClosed, match="create a new one"):
            await worker.start()


async def test_a_concurrent_start_of_a_worker_waits_for_the_first(storage: Storage, name: str) -> None:
    entered = 0

    async def lifespan(_app: GlideMQ[None]) -> AsyncGenerator[None]:
        nonlocal entered
        await asyncio.sleep(0)
        entered += 1
        yield

    mq = GlideMQ(storage, queue=name, lifespan=lifespan)

    @mq.task
    async def work() -> None: ...

    async with mq:
        worker = mq.worker()
        first = asyncio.create_task(worker.start())
        await asyncio.sleep(0)
        await worker.start()
        assert entered == 1
        assert len(await mq.queue(name).get_workers()) == 1
        await first
        await worker.close()


async def test_active_jobs_end_before_the_lifespan(storage: Storage, name: str) -> None:
    log: list[str] = []
    began, go = asyncio.Event(), asyncio.Event()

    async def lifespan(_app: GlideMQ[str]) -> AsyncGenerator[str]:
        yield "state"
        log.append("down")

    mq = GlideMQ(storage, queue=name, lifespan=lifespan)

    @mq.task
    async def work() -> None:
        began.set()
        await go.wait()
        log.append(mq.state)

    async with mq:
        job = await work.add()
        worker = mq.worker()
        running = asyncio.create_task(worker.run())
        await began.wait()
        worker.stop()
        go.set()
        await asyncio.wait_for(running, PATIENCE)
        assert log == ["state", "down"]
        assert await job.get_state() == "completed"


async def test_an_app_without_a_lifespan_has_no_state() -> None:
    with pytest.raises(RuntimeError, match="it has no lifespan"):
        _ = GlideMQ("memory://").state
    with pytest.raises(TypeError, match="lifespan must be a function"):
        GlideMQ("memory://", lifespan=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
