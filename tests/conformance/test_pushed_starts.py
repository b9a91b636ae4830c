"""The start of a pushed job in the callback of its message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from glidemq_async import Queue
from glidemq_async.functions.push import KINDS
from glidemq_async.storage import Storage, Subscription
from tests.support.helpers import AnyJob, echo, idle, worker_of
from tests.support.recording_storage import Relay

TENANT: ContextVar[str] = ContextVar("tenant", default="none")


class Immediate(Relay):
    """A storage that notes whether a push has started its job, and its worker has called, when it is handled."""

    def __init__(self, inner: Storage, runs: list[str]) -> None:
        super().__init__(inner)
        self._runs = runs
        self.started: list[bool] = []
        self.called: list[bool] = []

    async def subscribe(
        self, key: str, channel: str, on_message: Callable[[bytes], None], on_change: Callable[[bool], None]
    ) -> Subscription:
        def deliver(message: bytes) -> None:
            before, calls = len(self._runs), len(self.calls)
            on_message(message)
            if message[:1] in KINDS:
                self.started.append(len(self._runs) > before)
                self.called.append(len(self.calls) > calls)

        return await super().subscribe(key, channel, deliver, on_change)


async def test_a_pushed_job_starts_in_the_turn_of_its_message(storage: Storage, name: str) -> None:
    runs: list[str] = []
    relay = Immediate(storage, runs)

    async def note(job: AnyJob) -> str:
        runs.append(job.id)
        return job.id

    async with Queue[Any, Any](name, relay) as queue, worker_of(queue, note, concurrency=2) as worker:
        for _ in range(3):
            await idle(worker)
            job = await queue.add("n", 1)
            assert await job.result(5) == job.id
        # Python 3.11 has no eager tasks, and the worker no idle task before its first job.
        assert relay.started[1:] == [True, True]
        assert relay.called[1:] == [True, True]  # with the outcome
        assert await queue.check() == []


async def test_a_pushed_job_that_pauses_its_worker_is_settled(storage: Storage, name: str) -> None:
    runs: list[str] = []
    relay = Immediate(storage, runs)

    async def pause(job: AnyJob) -> None:
        runs.append(job.id)
        worker.pause()
        worker.resume()

    async with Queue[Any, Any](name, relay) as queue, worker_of(queue, pause, concurrency=2) as worker:
        for _ in range(3):
            await idle(worker)
            assert await (await queue.add("n", 1)).result(5) is None
        assert relay.started[1:] == [True, True]
        assert relay.called[1:] == [False, False]  # the claim loop continues in the next iteration
        assert await queue.check() == []


async def test_a_pushed_job_runs_in_the_context_of_its_worker(storage: Storage, name: str) -> None:
    key, is_up = f"glide:{{{name}}}", asyncio.Event()

    def note(up: bool) -> None:
        if up:
            is_up.set()

    async def of_request() -> Subscription:
        """Open the connection that the worker's subscription uses too."""
        TENANT.set("of a request")
        return await storage.subscribe(key, f"{key}:other", lambda _: None, note)

    async def tenant(_job: AnyJob) -> str:
        return TENANT.get()

    async with Queue[Any, Any](name, storage) as queue:
        other = await asyncio.create_task(of_request())
        await is_up.wait()
        TENANT.set("of the worker")
        async with worker_of(queue, tenant) as worker:
            await idle(worker)
            assert await queue.add_and_wait("n", wait_timeout=5) == "of the worker"
        await other.close()


class Blocked(Relay):
    """A storage whose pushes are followed by a callback that blocks the loop for longer than a push may wait."""

    async def subscribe(
        self, key: str, channel: str, on_message: Callable[[bytes], None], on_change: Callable[[bool], None]
    ) -> Subscription:
        def deliver(message: bytes) -> None:
            if message[:1] in KINDS:
                asyncio.get_running_loop().call_soon(time.sleep, 0.3)
            on_message(message)

        return await super().subscribe(key, channel, deliver, on_change)


async def test_a_push_that_waits_too_long_for_the_claim_loop_is_claimed_again(storage: Storage, name: str) -> None:
    heard = list[AnyJob]()
    async with (
        Queue[Any, Any](name, Blocked(storage)) as queue,
        worker_of(queue, echo, lock_duration=1, max_stalled=0) as worker,
    ):
        worker.on("active", heard.append)  # because of a listener, the claim loop starts the job
        await idle(worker)
        job = await queue.add("n", 1)
        assert await job.result(10) == 1
        assert [one.id for one in heard] == [job.id]
        assert await queue.check() == []
