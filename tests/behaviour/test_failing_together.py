"""One part of several fails: parts that work are cancelled and awaited, and parts that close all reach their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from typing_extensions import override

from glidemq_async import Queue, Worker, WorkerPool
from glidemq_async.executors import InlineExecutor
from glidemq_async.integrations.queues import Queues
from glidemq_async.storage import Endpoint, Storage
from glidemq_async.storage.redis.cluster import ClusterServers
from glidemq_async.storage.redis.node import Node
from glidemq_async.tasks.app import GlideMQ
from tests.storage.small_library import LIBRARY
from tests.support.helpers import echo, soon

NOWHERE = "redis://127.0.0.1:1"


class Steps:
    """The waits of the parts that do not fail, and how they ended."""

    def __init__(self) -> None:
        self.begun, self.allowed = asyncio.Event(), asyncio.Event()
        self.ends: list[str] = []

    async def wait(self) -> None:
        self.begun.set()
        try:
            await self.allowed.wait()
            self.ends.append("done")
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.ends.append("cancelled")
            raise

    async def fail(self) -> None:
        await self.begun.wait()
        raise OSError("broken part")

    async def assert_all_end(self, closing: asyncio.Task[Any]) -> None:
        """Check that the close waits for the other part after the failure, and then raises the error."""
        await soon(self.begun.wait())
        await asyncio.wait([closing], timeout=0.05)
        assert not closing.done()
        assert not self.ends
        self.allowed.set()
        with pytest.raises(OSError, match="broken part"):
            await soon(closing)
        assert self.ends == ["done"]


async def _nothing() -> None:
    pass


async def _do_not_start() -> None:
    raise ValueError("does not start")


class PartOfPool(Worker[Any, Any]):
    """A worker without a server. The test gives its steps."""

    def __init__(
        self, until_empty: Callable[[], Any], close: Callable[[], Any], start: Callable[[], Any] = _nothing
    ) -> None:
        super().__init__("q", echo, NOWHERE)
        self._start_step, self._until_empty_step, self._close_step = start, until_empty, close

    @override
    async def start(self) -> None:
        await self._start_step()

    @override
    async def until_empty(self, *, wait: bool = True) -> None:
        await self._until_empty_step()

    @override
    async def close(self) -> None:
        await self._close_step()


async def test_a_failing_worker_of_a_pool_ends_the_waits_of_the_others_before_they_close() -> None:
    steps = Steps()
    ends_at_close: list[list[str]] = []

    async def close() -> None:
        ends_at_close.append(list(steps.ends))

    pool = WorkerPool([PartOfPool(steps.wait, close), PartOfPool(steps.fail, close)], handle_signals=False)
    with pytest.raises(OSError, match="broken part"):
        await soon(pool.run(until_empty=True))
    assert ends_at_close == [["cancelled"], ["cancelled"]]


async def test_a_pool_that_cannot_start_closes_every_worker_before_it_raises_the_error_of_one() -> None:
    steps = Steps()
    parts = [PartOfPool(_nothing, steps.fail), PartOfPool(_nothing, steps.wait, _do_not_start)]
    await steps.assert_all_end(asyncio.create_task(WorkerPool(parts, handle_signals=False).start()))


async def test_the_queues_of_a_service_all_close_before_their_storage_does(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps()

    async def close(queue: Queue[Any, Any]) -> None:
        await (steps.fail() if queue.name == "broken" else steps.wait())

    monkeypatch.setattr(Queue, "close", close)
    queues = Queues(storage)
    await queues.__aenter__()
    for name in ("broken", "other"):
        queues.get(name)
    await steps.assert_all_end(asyncio.create_task(queues.__aexit__(None, None, None)))


async def test_every_executor_stops_after_a_failed_start_even_if_one_of_them_fails(storage: Storage, name: str) -> None:
    steps = Steps()

    class Part(InlineExecutor):
        def __init__(self, stop: Callable[[], Any], start: Callable[[], Any] = _nothing) -> None:
            super().__init__()
            self._stop_step, self._start_step = stop, start

        @override
        async def start(self, freed: Callable[[], None]) -> None:
            await self._start_step()

        @override
        async def stop(self, grace: float) -> None:
            await self._stop_step()

    mq = GlideMQ(storage, queue=name)
    parts = [Part(steps.fail), Part(steps.wait), Part(_nothing, _do_not_start)]
    for number, part in enumerate(parts):

        @mq.task(name=f"task-{number}", executor=part)
        async def work() -> None: ...

    async with mq:
        await steps.assert_all_end(asyncio.create_task(mq.worker(handle_signals=False).start()))


async def test_a_primary_that_cannot_be_opened_cancels_the_opening_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = Steps()

    class Part:
        def __init__(self, step: Callable[[], Any]) -> None:
            self.open = step

    async def primaries() -> list[Node]:
        return cast("list[Node]", [Part(steps.wait), Part(steps.fail)])

    servers = ClusterServers([("127.0.0.1", 1)], Endpoint(), "redis+cluster://127.0.0.1:1", LIBRARY, None)
    monkeypatch.setattr(servers, "primaries", primaries)
    with pytest.raises(OSError, match="broken part"):
        await soon(servers.open_all())
    assert steps.ends == ["cancelled"]
