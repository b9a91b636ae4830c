"""Claims whose reply did not reach the worker, and claims that a failover lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from glidemq_async import Queue
from glidemq_async.functions.settle import SettleReply
from glidemq_async.storage import open_storage
from tests.storage.proxy import proxied
from tests.support.clocked_queue import DAY, HOUR, MINUTE, SECOND, Timed
from tests.support.fake_worker import FakeWorker, Lease, leases_of
from tests.support.helpers import AnyJob, Heard, worker_of
from tests.support.servers import standalone
from tests.support.stores import RunningStore, endpoint_of

pytestmark = pytest.mark.untidy
LEASE = 30 * SECOND
GAP = LEASE // 2


# -- the reply was lost -----------------------------------------------------------------------------------------------


async def lose_reply(timed: Timed, worker: FakeWorker, lock_ms: int = LEASE) -> Lease:
    """The worker does not receive the reply to its claim, and lives longer than the lease."""
    [lease] = await worker.claim(lock_ms=lock_ms)
    for _ in range(2):
        await timed.clock.advance(lock_ms * 2 // 3)
        await worker.renew()
        await timed.fake_worker.first_sweep(gap_ms=10**9)
    await worker.vanish(lease, for_ms=lock_ms * 4 // 3)
    return lease


async def counts_of(job: AnyJob) -> tuple[str, int]:
    await job.refresh()
    return job.state, job.stalled_count


async def test_a_claim_that_never_arrived_is_not_a_stall(timed: Timed) -> None:
    job = await timed.queue.add("n", 1)
    worker = FakeWorker(timed.queue, timed.store)
    await worker.renew()
    for _ in range(6):
        await lose_reply(timed, worker)
        await timed.fake_worker.first_sweep(gap_ms=10**9)
        assert await counts_of(job) == ("waiting", 0)
    assert await timed.run() == ["n"]
    assert await counts_of(job) == ("completed", 0)


@pytest.mark.parametrize("lifo", [False, True])
async def test_a_claim_that_was_renewed_before_it_arrived_is_not_a_stall(timed: Timed, lifo: bool) -> None:
    job = await timed.queue.add("n", 1, lifo=lifo)
    worker = FakeWorker(timed.queue, timed.store)
    await worker.renew()
    [lease] = await worker.claim(lock_ms=LEASE)
    await timed.clock.advance(LEASE * 2 // 3)
    await worker.renew(in_transit=True)
    await timed.clock.advance(LEASE * 4 // 3)
    await worker.vanish(lease, for_ms=LEASE * 4 // 3)
    await timed.fake_worker.first_sweep(gap_ms=10**9)
    assert await counts_of(job) == ("waiting", 0)


async def test_a_job_that_never_arrives_fails_as_undelivered(timed: Timed) -> None:
    job = await timed.queue.add("n", 1)
    worker = FakeWorker(timed.queue, timed.store)
    await worker.renew()
    for _ in range(21):
        assert (await counts_of(job))[0] == "waiting"
        await lose_reply(timed, worker)
        await timed.fake_worker.first_sweep(gap_ms=10**9)
    await job.refresh()
    assert (job.state, job.failed_reason, job.failure_cause, job.stalled_count) == (
        "failed",
        "undelivered",
        "undelivered",
        0,
    )
    # A retry by hand resets the counter.
    await job.retry()
    await lose_reply(timed, worker)
    await timed.fake_worker.first_sweep(gap_ms=10**9)
    assert await timed.run() == ["n"]


@pytest.mark.parametrize("proof", ["renewed", "called again", "fell silent"])
async def test_a_claim_that_may_have_arrived_is_a_stall(timed: Timed, proof: str) -> None:
    """A job may have killed its process, so its claim counts as a stall unless it certainly did not arrive."""
    job = await timed.queue.add("n", 1)
    worker = FakeWorker(timed.queue, timed.store)
    await worker.renew()
    if proof == "fell silent":
        [lease] = await worker.claim(lock_ms=LEASE)
        await timed.clock.advance(LEASE // 3)
        await worker.renew()  # it may have been on its way when the reply came
        await worker.vanish(lease, for_ms=2 * LEASE)
        await timed.clock.advance(2 * LEASE)
    else:
        lease = await lose_reply(timed, worker)
        await worker.vanish(lease, for_ms=0)
        assert await worker.renew(*([lease] if proof == "renewed" else [])) == []
        if proof == "called again":
            await timed.queue.pause()
            assert await worker.claim() == []
            await timed.queue.resume()
        await worker.vanish(lease, for_ms=2 * LEASE)
    assert await timed.fake_worker.first_sweep(gap_ms=10**9) == [job.id]
    assert await counts_of(job) == ("waiting", 1)
    assert await timed.run() == ["n"]


async def outage(timed: Timed, ms: int, *leases: Lease, of: FakeWorker) -> None:
    """No worker can reach the server for this time. Then another worker sweeps first."""
    await timed.fake_worker.first_sweep(GAP)
    await timed.pass_time(ms)
    await of.vanish(*leases, for_ms=ms)
    assert await timed.fake_worker.first_sweep(GAP) == []


@pytest.mark.parametrize("ms", [HOUR, 3 * DAY])
async def test_a_claim_that_is_repeated_after_an_outage_returns_the_same_jobs(timed: Timed, ms: int) -> None:
    """An outage does not count against a lease, so the worker still owns the jobs whose reply it has not received."""
    await timed.queue.add("first", 1)
    worker = FakeWorker(timed.queue, timed.store)
    await worker.renew()
    claimed = await worker.claim(lock_ms=LEASE)
    await timed.queue.add("second", 2)
    await outage(timed, ms, *claimed, of=worker)
    reply = await worker.repeat()
    assert [claim.name for claim in claimed] == ["first"]
    assert (leases_of(reply), reply.is_broken) == (claimed, False)
    assert await worker.settle(claimed[0]) is None
    assert await timed.run() == ["second"]


@pytest.mark.parametrize("ms", [HOUR, 3 * DAY])
async def test_an_outcome_that_is_repeated_after_an_outage_is_not_refused(timed: Timed, ms: int) -> None:
    job = await timed.queue.add("n", 1)
    worker = FakeWorker(timed.queue, timed.store)
    await worker.renew()
    [lease] = await worker.claim(lock_ms=LEASE)
    assert await worker.settle(lease) is None
    assert await counts_of(job) == ("completed", 0)
    await outage(timed, ms, of=worker)
    assert (await worker.repeat()).refused == {}


async def test_a_worker_that_signs_off_leaves_its_last_reply_for_ten_minutes(timed: Timed) -> None:
    worker = FakeWorker(timed.queue, timed.store)
    await worker.claim()
    key = f"{worker.base}:call:{worker.name}"
    assert 7 * DAY - MINUTE < (await timed.store.lifetimes([key]))[key] <= 7 * DAY
    await worker.leave()
    assert 9 * MINUTE < (await timed.store.lifetimes([key]))[key] <= 10 * MINUTE


# -- the claim was lost -----------------------------------------------------------------------------------------------


class Failover:
    """Two workers with the same entry: `zombie` claimed it on a primary, `successor` on the replica that took over."""

    def __init__(
        self, old: Queue[Any, Any], new: Queue[Any, Any], old_store: RunningStore, new_store: RunningStore
    ) -> None:
        self._before, self.zombie, self.successor = (
            FakeWorker(old, old_store),
            FakeWorker(new, new_store),
            FakeWorker(new, new_store),
        )
        # One worker, before and after.
        self.zombie.name = self._before.name
        self.zombie.channel = self._before.channel

    async def claim(self) -> tuple[Lease, Lease]:
        """Let both workers claim."""
        await self._before.claim(0)
        [lost], [lease] = await self._before.claim(), await self.successor.claim()
        assert lost[:3] == lease[:3], "both must have the same entry and fencing token"
        return lost, lease


@asynccontextmanager
async def lost_claims() -> AsyncGenerator[tuple[Queue[Any, Any], Failover]]:
    """A queue with one job, just after its replica took over."""
    async with AsyncExitStack() as stack:
        primary = await stack.enter_async_context(standalone())
        replica = await stack.enter_async_context(standalone(replica_of=primary))
        queues, stores = list[Queue[Any, Any]](), list[RunningStore]()
        for server in (primary, replica):
            if server is replica:
                await queues[0].add("n", 1)
                await primary.command("WAIT", 1, 5000)
                await replica.command("REPLICAOF", "NO", "ONE")
            storage = await stack.enter_async_context(open_storage(server.url))
            queues.append(await stack.enter_async_context(Queue[Any, Any]("q", storage)))
            stores.append(RunningStore("failover", server.url, (endpoint_of(server),)))
        yield queues[1], Failover(queues[0], queues[1], stores[0], stores[1])


async def test_a_renewal_does_not_take_an_entry_from_another_worker() -> None:
    async with lost_claims() as (_, workers):
        lost, lease = await workers.claim()
        assert await workers.zombie.renew(lost) == [lost.entry]
        assert await workers.successor.renew(lease) == []
        assert await workers.zombie.renew(lost) == [lost.entry]
        assert await workers.successor.settle(lease) is None


async def test_a_run_whose_claim_was_lost_writes_nothing() -> None:
    async with lost_claims() as (queue, workers):
        lost, lease = await workers.claim()
        assert await workers.zombie.update(lost, "progress", b"\x01") == "stale"
        assert await workers.zombie.update(lost, "log", "zombie") == "stale"
        assert await workers.successor.update(lease, "progress", b"\x02") == "ok"
        assert await workers.zombie.settle(lost) == "stale"
        assert await workers.successor.settle(lease, payload=b"\x07") is None
        job = await queue.get_job(lease.id)
        assert job is not None
        assert (job.state, job.progress, job.return_value) == ("completed", 2, 7)


async def test_the_first_call_after_a_failover_reports_that_claims_may_be_lost() -> None:
    async with lost_claims() as (_, workers):
        lost, lease = await workers.claim()
        reply: SettleReply = await workers.zombie.complete()
        assert reply.is_broken
        assert (await workers.zombie.complete()).is_broken is False
        # A worker verifies each run until it has renewed its leases.
        assert (await workers.zombie.complete(lost, verify=True)).refused == {0: "stale"}
        assert await workers.successor.settle(lease) is None


# -- a complete worker -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refused", ["its settle", "its renewal"])
async def test_the_outcome_of_a_run_whose_claim_was_lost_is_refused(refused: str) -> None:
    """The worker continues with the replica that took over, where another worker has claimed the job since."""
    async with AsyncExitStack() as stack:
        primary = await stack.enter_async_context(standalone())
        replica = await stack.enter_async_context(standalone(replica_of=primary))
        proxy = await stack.enter_async_context(proxied(primary))
        storage = await stack.enter_async_context(open_storage(f"redis://127.0.0.1:{proxy.port}"))
        queue = await stack.enter_async_context(Queue[Any, Any]("q", storage))
        job = await queue.add("n", 1)
        await primary.command("WAIT", 1, 5000)
        await replica.command("REPLICAOF", "NO", "ONE")
        release = threading.Event()
        stack.callback(release.set)

        def block(job: AnyJob) -> str:
            started.set()
            # A thread cannot be stopped, so this run returns a result in any case.
            if refused == "its settle":
                release.wait(30)
            else:
                job.abort.wait_in_thread(30)
            return "zombie"

        started = threading.Event()
        worker = worker_of(queue, block, executor="thread", concurrency=1 if refused == "its settle" else 2)
        await stack.enter_async_context(worker)
        assert await asyncio.to_thread(started.wait, 10)
        lost = Heard(worker, "lease_lost")

        direct = await stack.enter_async_context(open_storage(replica.url))
        there = await stack.enter_async_context(Queue[Any, Any]("q", direct))
        successor = FakeWorker(there, RunningStore("failover", replica.url, (endpoint_of(replica),)))
        [lease_of_successor] = await successor.claim()
        assert lease_of_successor.id == job.id
        await proxy.redirect(replica)
        release.set()
        [lost_job] = await lost.next()
        assert lost_job.id == job.id
        assert await successor.settle(lease_of_successor, payload=b"\x07") is None
        assert await job.result(10) == 7
