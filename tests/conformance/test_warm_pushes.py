"""A resumed job is pushed to the idle worker that keeps its function, unless something else has to decide first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from glidemq_async import JobOptions
from glidemq_async.functions.outcomes import Suspended
from glidemq_async.functions.wakeup import ClaimNow
from glidemq_async.stored.hand_over import Waits, read_hand_over
from tests.support.fake_worker import leases_of
from tests.support.helpers import PATIENCE, AnyJob, AnyQueue, counts
from tests.support.idle_worker import IdleWorker, leases_in
from tests.support.stores import RunningStore

WARM = Suspended(Waits("", None).stored(), None, is_warm=True)
LARGE = 65_537
"""Bytes of data from which on a job is not pushed."""


class Keeper(IdleWorker):
    """A worker that keeps the function of a suspended run."""

    def __init__(self, queue: AnyQueue, store: RunningStore) -> None:
        super().__init__(queue, store)
        self.link = AsyncExitStack()
        """Leaving it ends the subscription of the worker."""

    async def suspend(self, queue: AnyQueue, data: Any = None, **options: Any) -> AnyJob:
        """Run a job with these options, suspend it, and wait for more jobs."""
        job = await queue.add("n", data, JobOptions(**options))
        [lease] = leases_of(await self.wait(2))
        assert (await self.settle_as(lease, WARM)).refused == {}
        await self.wait(2)
        return job


@pytest.fixture
async def keeper(queue: AnyQueue, store: RunningStore) -> AsyncGenerator[Keeper]:
    await queue.connect()
    worker = Keeper(queue, store)
    async with worker.link:
        await worker.link.enter_async_context(worker.listening())
        yield worker
    await worker.leave()


@pytest.mark.everywhere
async def test_an_idle_keeper_gets_the_signal_with_the_push(queue: AnyQueue, keeper: Keeper) -> None:
    job = await keeper.suspend(queue)
    await job.signal("go", 1)
    [lease] = leases_in(pushed := await keeper.pushed())
    assert (lease.id, lease.fence) == (job.id, 2)
    history = pushed.jobs[0].history
    assert history is not None
    assert [one.name for one in read_hand_over(history.hand_over).signals] == ["go"]
    assert await counts(queue) == {"active": 1}
    assert (await keeper.complete(lease)).refused == {}
    assert await queue.check() == []


@pytest.mark.parametrize(
    ("data", "options"),
    [(None, {"key": "k"}), (None, {"lock_duration": 60}), (b"x" * LARGE, {})],
    ids=["ordering key", "own lease", "much data"],
)
async def test_a_job_that_needs_a_claim_is_not_pushed(
    queue: AnyQueue, keeper: Keeper, data: Any, options: dict[str, Any]
) -> None:
    job = await keeper.suspend(queue, data, **options)
    await job.signal("go")
    assert isinstance(await keeper.message(), ClaimNow)
    [lease] = leases_of(await keeper.wait(2))
    assert (lease.id, lease.fence) == (job.id, 2)
    assert (await keeper.complete(lease)).refused == {}
    assert await queue.check() == []


@pytest.mark.parametrize("gate", ["pause", "limit"])
async def test_a_job_that_may_not_start_is_not_pushed(queue: AnyQueue, keeper: Keeper, gate: str) -> None:
    job = await keeper.suspend(queue)
    other = await queue.add("n")
    [running] = leases_in(await keeper.pushed())
    await keeper.wait(1, has_push=True)
    if gate == "pause":
        await queue.pause()
    else:
        await queue.set_global_concurrency(1)
    await job.signal("go")
    # The signal and its push are one call, so the state after its reply is the one that it has caused.
    assert await job.get_state() == "waiting"
    assert (running.id, await other.get_state()) == (other.id, "active")
    await keeper.complete(running)
    await queue.resume()
    assert [lease.id for lease in leases_of(await keeper.wait(2))] == [job.id]
    assert await queue.check() == []


@pytest.mark.parametrize("keeper_is", ["deaf", "busy", "pushed to"])
async def test_a_keeper_that_cannot_start_the_job_delays_it_not(
    queue: AnyQueue, store: RunningStore, keeper: Keeper, keeper_is: str
) -> None:
    job, second = await keeper.suspend(queue), await keeper.suspend(queue)
    channel = f"{keeper.base}:wake:{keeper.name}"
    if keeper_is == "deaf":
        await keeper.link.aclose()
        async with asyncio.timeout(PATIENCE):
            while await store.ask("PUBSUB", "SHARDNUMSUB", channel) != [channel.encode(), 0]:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    elif keeper_is == "busy":
        await queue.add("n", options=JobOptions(priority=1))
        assert len(leases_of(await keeper.wait(1))) == 1
    else:
        await second.signal("go")
        assert [one.id for one in leases_in(await keeper.pushed())] == [second.id]
    await job.signal("go")
    assert await job.get_state() == "waiting"
    other = IdleWorker(queue, store)
    [lease] = leases_of(await other.wait())
    assert (lease.id, lease.fence) == (job.id, 2)
    assert await queue.check() == []
    await other.leave()


async def test_a_job_whose_message_would_be_too_long_waits(
    queue: AnyQueue, store: RunningStore, keeper: Keeper
) -> None:
    job = await keeper.suspend(queue)
    await store.ask("HSET", f"{keeper.base}:job:{job.id}", "progress", b"z" * 140_000)
    await job.signal("go")
    assert await store.ask("EXISTS", f"{keeper.base}:runs") == 0
    assert isinstance(await keeper.message(), ClaimNow)
    [lease] = leases_of(await keeper.wait(2))
    assert (lease.id, lease.fence) == (job.id, 2)
    assert (await keeper.complete(lease)).refused == {}
    assert await queue.check() == []
