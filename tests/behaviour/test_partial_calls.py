"""Calls that add and settle end after a few milliseconds of the server, and the client goes on with its next call."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from glidemq_async import Job, JobOptions, Queue, Worker
from glidemq_async.functions.settle import SettleReply, SettleRequest
from glidemq_async.storage import Endpoint, RedisStorage
from glidemq_async.storage.redis.library import Library
from glidemq_async.worker.call_sender import CallSender
from tests.support.fake_worker import FakeWorker
from tests.support.servers import standalone
from tests.support.short_calls import no_time_a_call, one_job_a_call
from tests.support.stores import RunningStore

JOBS = 60
SLOTS = 30
FAILING = 6


@asynccontextmanager
async def storage_with(library: Library) -> AsyncGenerator[tuple[RedisStorage, Endpoint]]:
    """Open a storage on a new server, because its library differs from the shipped one."""
    async with standalone(unix=True) as server:
        assert server.path is not None
        endpoint = Endpoint(path=server.path)
        async with RedisStorage(endpoint, library=library) as opened:
            yield opened, endpoint


@pytest.fixture
async def storage() -> AsyncGenerator[RedisStorage]:
    """A storage whose calls add or settle one job."""
    async with storage_with(one_job_a_call()) as (opened, _):
        yield opened


class Handler:
    """Lets as many runs end at the same time as the worker has slots, so that one call carries many outcomes."""

    def __init__(self) -> None:
        self.runs = Counter[int]()
        self.seconds = 0.0
        self._together = [asyncio.Event() for _ in range(JOBS // SLOTS)]

    async def __call__(self, job: Job[int, int]) -> int:
        began = asyncio.get_running_loop().time()
        place = self.runs.total()
        self.runs[job.data] += 1
        await asyncio.sleep(0.05)
        together = self._together[place // SLOTS]
        if place % SLOTS == SLOTS - 1:
            together.set()
        await together.wait()
        if job.data < FAILING:
            raise ValueError("broken")
        self.seconds += asyncio.get_running_loop().time() - began
        return job.data


def options(number: int) -> JobOptions:
    """Return the options of a job, of every kind in turn."""
    return [JobOptions(), JobOptions(key=f"key{number}"), JobOptions(priority=2), JobOptions(lifo=True)][number % 4]


async def test_the_runs_of_a_call_that_ends_early_are_settled_by_later_calls(
    storage: RedisStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, lost, replies = Handler(), list[object](), list[SettleReply]()
    send = CallSender.send

    async def noting(sender: CallSender, request: SettleRequest) -> SettleReply:
        replies.append(await send(sender, request))
        return replies[-1]

    monkeypatch.setattr(CallSender, "send", noting)
    async with Queue[int, int]("short", storage) as queue:
        jobs = await queue.add_bulk([("n", number, options(number)) for number in range(JOBS)])
        assert [(job.id, job.data) for job in jobs] == [(str(number + 1), number) for number in range(JOBS)]
        worker = Worker("short", handler, storage, concurrency=SLOTS, handle_signals=False)
        worker.on("lease_lost", lost.append)
        await worker.run(until_empty=True)
        counts = await queue.get_job_counts()
        assert (counts["completed"], counts["failed"]) == (JOBS - FAILING, FAILING)
        assert handler.runs == dict.fromkeys(range(JOBS), 1)
        assert not lost
        assert {reply.settled for reply in replies} == {0, 1}, "each call settles one run"
        assert sum(reply.settled for reply in replies) == JOBS
        metrics = await queue.get_metrics("completed")
        assert metrics.count == JOBS - FAILING
        # The duration of each run counts once, although most runs were sent in many calls.
        seconds = sum(point.count * point.mean_seconds for point in metrics.points)
        assert seconds == pytest.approx(handler.seconds, rel=0.2)
        assert await queue.check() == []


async def test_each_call_gets_on_although_its_time_is_spent_when_it_begins() -> None:
    async with storage_with(no_time_a_call()) as (storage, endpoint), Queue[int, int]("slow", storage) as queue:
        store = RunningStore("slow", storage.url, (endpoint,))
        fake_worker = FakeWorker(queue, store)
        for how in [JobOptions(), JobOptions(key="k"), JobOptions(priority=2), JobOptions(lifo=True)]:
            await queue.add_bulk([("n", number, how) for number in range(JOBS)])
        leases = await fake_worker.claim(2 * JOBS)
        assert len(leases) == 2 * JOBS
        await fake_worker.complete(*leases[:JOBS])
        await fake_worker.vanish(*leases[JOBS:])
        assert len(await FakeWorker(queue, store).sweep()) == JOBS
        assert len([job async for job in queue.iter_jobs(["waiting", "prioritized", "key-waiting"])]) == 3 * JOBS
        assert await queue.check() == []
        await queue.clean(0, state="completed")
        await queue.drain()
        await queue.obliterate()
