"""Workers that start and stop, also if their server is not up yet or no longer replies."""

from __future__ import annotations

import asyncio
import logging
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import GlideMQ, Job, Queue, StorageUnavailable, Worker, WorkerOptions
from glidemq_async._internal import failpoints
from glidemq_async.storage import Endpoint, MemoryStorage
from glidemq_async.storage.protocol import Subscription
from glidemq_async.storage.redis.standalone import RedisStorage
from glidemq_async.worker import session
from tests.support.helpers import echo, soon, until
from tests.support.servers import Server, standalone


class Impatient(RedisStorage):
    """A short time limit for connecting."""

    _connect_timeout = 0.3


async def test_a_worker_that_could_not_start_can_be_started_again() -> None:
    with tempfile.TemporaryDirectory(prefix="gmq-") as room:
        server = Server(Path(room), unix=True)
        storage = Impatient(Endpoint(path=server.path or ""), server.url)
        worker = Worker[Any, Any]("q", echo, storage, handle_signals=False)
        try:
            for _ in range(2):
                with pytest.raises(StorageUnavailable):
                    await worker.start()
            await server.start()
            storage._connect_timeout = 10.0  # pyright: ignore[reportPrivateUsage]
            await soon(worker.start())
            async with Queue[Any, Any]("q", storage) as queue:
                assert await queue.add_and_wait("n", "works", wait_timeout=5) == "works"
            assert worker.health().ready
        finally:
            await soon(worker.close())
            await storage.close()
            server.kill()


class Hesitant(MemoryStorage):
    """A storage whose first subscription of a worker fails."""

    def __init__(self) -> None:
        super().__init__()
        self.subscribed: list[str] = []

    async def subscribe(
        self, key: str, channel: str, on_message: Callable[[bytes], None], on_change: Callable[[bool], None]
    ) -> Subscription:
        self.subscribed.append(channel)
        if len(self.subscribed) == 1:
            raise StorageUnavailable("not yet")
        return await super().subscribe(key, channel, on_message, on_change)


async def test_regression_a_worker_whose_subscription_failed_is_started_by_the_next_start() -> None:
    async with Hesitant() as storage, Queue[Any, Any]("q", storage) as queue:
        worker = Worker[Any, Any]("q", echo, storage, handle_signals=False)
        with pytest.raises(StorageUnavailable):
            await worker.start()
        await asyncio.gather(worker.start(), worker.start())
        assert len(storage.subscribed) == 2, "two concurrent starts must be one"
        job = await queue.add("n", "works")
        assert await job.result(5) == "works"
        await worker.close()


async def test_a_worker_logs_its_ended_runs_and_released_jobs_when_it_has_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "glidemq_async.worker")
    begun = asyncio.Event()

    async def work(job: Job[Any, Any]) -> None:
        if job.data == "waits":
            begun.set()
            await asyncio.Event().wait()

    async with MemoryStorage() as storage, Queue[Any, Any]("q", storage) as queue:
        worker = Worker[Any, Any]("q", work, storage, concurrency=4, handle_signals=False)
        await worker.start()
        for job in await queue.add_bulk([("n", number) for number in range(3)]):
            await job.result(5)
        await queue.add("n", "waits")
        await soon(begun.wait())
        worker.stop(immediately=True)
        await worker.close()
    assert caplog.messages[0] == f"worker {worker.name} works on queue q of {storage.url}"
    assert caplog.messages[-1] == f"worker {worker.name} of queue q has stopped; ended runs: 3, released jobs: 1"


async def test_a_worker_logs_how_many_outcomes_it_could_not_store(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "RELEASE_SECONDS", 0.1)
    caplog.set_level(logging.INFO, "glidemq_async.worker")
    async with standalone(unix=True) as server, Queue[Any, Any]("q", server.url) as queue:
        begun = asyncio.Event()

        async def work(_job: Job[Any, Any]) -> None:
            server.pause()
            begun.set()

        worker = Worker[Any, Any]("q", work, server.url, handle_signals=False)
        try:
            await worker.start()
            await queue.add("n")
            await soon(begun.wait())
            await soon(worker.close(), 20)
        finally:
            server.resume()
    text = "has stopped; ended runs: 0, released jobs: 0, outcomes not stored: 1"
    assert caplog.messages[-1] == f"worker {worker.name} of queue q {text}"


async def test_a_worker_whose_server_is_frozen_closes_in_time() -> None:
    async with standalone(unix=True) as server:
        frozen: list[float] = []

        def freeze() -> None:
            if not frozen:
                frozen.append(time.monotonic())
                server.pause()

        # Frozen during a renewal, which a lease of 90 s would let wait for half a minute.
        failpoints.arm("renew.before_send", freeze)
        worker = Worker[Any, Any]("q", echo, server.url, lock_duration=90, shutdown_timeout=1, handle_signals=False)
        try:
            await worker.start()
            await until(lambda: bool(frozen))
            began = time.monotonic()
            await soon(worker.close(), 40)
            assert time.monotonic() - began < 8
        finally:
            failpoints.disarm()
            server.resume()


async def test_a_worker_without_a_server_logs_when_it_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "glidemq_async")
    async with standalone(unix=True) as server:
        errors: list[Exception] = []
        options = WorkerOptions(poll_interval=0.1, lock_duration=1, handle_signals=False)
        async with Worker[Any, Any]("q", echo, server.url, options=options, timeout=0.2) as worker:
            worker.on("error", errors.append)
            server.kill()
            await until(lambda: any("the last failure was" in str(error) for error in errors))
            await until(lambda: any("could not renew" in message for message in caplog.messages))
    text = rf"worker {worker.name} of queue q: \w+ got no reply from .*; the last failure was: .*\. "
    assert any(re.fullmatch(text + r"The worker tries again (now|in \d\.\d s)\.", line) for line in caplog.messages)
    assert not [line for line in caplog.messages if "call again" in line]


@pytest.mark.parametrize("what", ["queue", "app"])
async def test_a_cancelled_close_still_releases_everything(what: str) -> None:
    async with standalone(unix=True) as server:
        queue = Queue[Any, Any]("q", server.url)
        mq = GlideMQ(server.url, queue="q")

        @mq.task
        async def work() -> None: ...

        async def clients() -> int:
            return int((await server.info("clients"))["connected_clients"])

        opened = queue if what == "queue" else mq
        await opened.connect()
        assert await clients() > 1
        server.pause()
        adding = asyncio.ensure_future(queue.add("n", 1) if what == "queue" else work.add())
        for _ in range(100):  # until it is on its way, which no event announces
            await asyncio.sleep(0)
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await opened.close()
        finally:
            server.resume()
        await opened.close()
        await asyncio.gather(adding, return_exceptions=True)
        async with asyncio.timeout(10):
            while await clients() > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
