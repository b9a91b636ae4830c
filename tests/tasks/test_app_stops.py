"""The worker of an app: immediate release of its jobs, and one port for the probes of all its queues."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator

from glidemq_async import GlideMQ
from glidemq_async.storage import Storage
from tests.support.helpers import soon
from tests.support.servers import free_port


async def test_active_jobs_are_released_immediately(storage: Storage, name: str) -> None:
    app = GlideMQ(storage, queue=name)
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    async with app:
        job = await endless.add()
        worker = app.worker(handle_signals=False, shutdown_timeout=60)
        running = asyncio.create_task(worker.run())
        await soon(started.wait())
        worker.stop(immediately=True)
        await soon(running)
        assert await job.get_state() == "waiting"


class Lifespan:
    """A context manager whose entry waits for ever."""

    def __init__(self) -> None:
        self.entered, self.left = asyncio.Event(), asyncio.Event()

    async def __call__(self, app: GlideMQ) -> AsyncIterator[None]:
        self.entered.set()
        try:
            await asyncio.Event().wait()
            yield
        finally:
            self.left.set()


def app_of(storage: Storage, name: str) -> tuple[GlideMQ, Lifespan]:
    lifespan = Lifespan()
    app = GlideMQ(storage, queue=name, lifespan=lifespan.__call__)
    app.task(name="echo")(echo)
    return app, lifespan


async def echo(value: int) -> int:
    return value


async def test_a_stop_ends_a_slow_start(storage: Storage, name: str) -> None:
    app, lifespan = app_of(storage, name)
    worker = app.worker(handle_signals=False)
    running = asyncio.create_task(worker.run())
    await soon(lifespan.entered.wait())
    worker.stop()
    await soon(running)
    assert lifespan.left.is_set()


async def test_a_signal_ends_a_slow_start(storage: Storage, name: str) -> None:
    app, lifespan = app_of(storage, name)
    running = asyncio.create_task(app.run_worker())
    await soon(lifespan.entered.wait())
    os.kill(os.getpid(), signal.SIGTERM)
    await soon(running)
    assert lifespan.left.is_set()


async def test_a_stop_before_the_start_does_not_enter_the_lifespan(storage: Storage, name: str) -> None:
    app, lifespan = app_of(storage, name)
    worker = app.worker(handle_signals=False)
    worker.stop()
    await soon(worker.run())
    assert not lifespan.entered.is_set()


async def test_all_queues_are_probed_at_one_port(storage: Storage, name: str) -> None:
    app = GlideMQ(storage, queue=name)

    @app.task
    async def one() -> None: ...

    @app.task(queue=f"{name}-other")
    async def other() -> None: ...

    port = free_port()
    worker = app.worker(handle_signals=False, health_port=port)
    async with worker:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        head, _, body = (await soon(reader.read())).partition(b"\r\n\r\n")
        writer.close()
        assert head.startswith(b"HTTP/1.1 200")
        assert json.loads(body)["workers"].keys() == {each.name for each in worker.workers}
