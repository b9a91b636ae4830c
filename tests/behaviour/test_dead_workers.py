"""Jobs of dead workers start elsewhere, even after a time without workers and after outages of any kind."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import pytest

from glidemq_async import Queue
from glidemq_async.storage import open_storage
from tests.support.clocked_queue import HOUR, MINUTE, SECOND, Timed
from tests.support.fake_worker import FakeWorker, Lease
from tests.support.helpers import AnyQueue, Gate, Heard, echo, ended, soon, worker_of
from tests.support.servers import standalone
from tests.support.stores import RunningStore, endpoint_of

GAP = 15 * SECOND
pytestmark = pytest.mark.untidy  # workers that died do not sign off

WORKER = """
import asyncio, sys
from glidemq_async import Worker

async def hold(job):
    print("running", flush=True)
    await asyncio.Event().wait()

async def main():
    await Worker(sys.argv[1], hold, sys.argv[2], lock_duration=1, handle_signals=False).run()

asyncio.run(main())
"""


async def killed_worker(queue: AnyQueue) -> None:
    """Let a worker process claim a job, and kill it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, queue.name, queue.storage.url, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await soon(process.stdout.readline(), 30) == b"running\n"
    finally:
        process.kill()
        await process.wait()


@pytest.mark.only_on("redis7")
async def test_a_new_worker_soon_reclaims_leases_that_expired_without_one(queue: AnyQueue) -> None:
    job = await queue.add("n", 1)
    await killed_worker(queue)
    await asyncio.sleep(2.5)  # the lease of 1 s expires while no worker is present
    began = time.monotonic()
    async with worker_of(queue, echo, lock_duration=30) as worker:
        stalled = Heard(worker, "stalled")
        assert await job.result(10) == 1
        # A worker whose first sweep is refused sweeps again only after five seconds.
        assert time.monotonic() - began < 5
        await stalled.next()
    await job.refresh()
    assert job.stalled_count == 1


async def claim_and_renew(timed: Timed, lock_ms: int = 30 * SECOND) -> tuple[FakeWorker, Lease]:
    """A worker that has swept, claimed one job and renewed its lease."""
    worker = FakeWorker(timed.queue, timed.store)
    await worker.first_sweep(GAP)
    [lease] = await worker.claim(lock_ms=lock_ms)
    assert await worker.renew(lease) == []
    return worker, lease


async def pass_unrenewed(timed: Timed, worker: FakeWorker, lease: Lease, ms: int) -> None:
    """Let this time pass without a call of any worker."""
    await worker.vanish(lease, for_ms=ms)
    await timed.clock.advance(ms)


async def test_a_new_worker_counts_the_time_before_it_for_leases(timed: Timed) -> None:
    job = await timed.queue.add("n", 1)
    worker, lease = await claim_and_renew(timed)
    await pass_unrenewed(timed, worker, lease, MINUTE)
    newcomer = FakeWorker(timed.queue, timed.store)
    await newcomer.renew()
    assert await newcomer.first_sweep(GAP) == [job.id]
    assert await timed.run() == ["n"]


async def test_an_outage_is_recognized_by_a_worker_that_was_present_before_it(timed: Timed) -> None:
    job = await timed.queue.add("n", 1)
    worker, lease = await claim_and_renew(timed)
    survivor = FakeWorker(timed.queue, timed.store)
    await survivor.renew()
    await pass_unrenewed(timed, worker, lease, MINUTE)
    await survivor.renew()
    assert await survivor.first_sweep(GAP) == []
    # Only the outage does not count: half of the lease had passed before it.
    await worker.vanish(lease, for_ms=MINUTE + 16 * SECOND)
    await timed.clock.advance(SECOND)
    assert await survivor.first_sweep(GAP) == []
    await worker.vanish(lease, for_ms=MINUTE + 31 * SECOND)
    assert await survivor.first_sweep(GAP) == [job.id]
    assert await timed.run() == ["n"]


async def test_an_outage_in_two_parts_is_one_outage(timed: Timed) -> None:
    await timed.queue.add("n", 1)
    worker, lease = await claim_and_renew(timed)
    survivor = FakeWorker(timed.queue, timed.store)
    await survivor.renew()
    for passed in (MINUTE, 2 * MINUTE + SECOND):
        await timed.clock.advance(MINUTE)
        await worker.vanish(lease, for_ms=passed)
        await survivor.renew()
        assert await survivor.first_sweep(GAP) == []
        await timed.clock.advance(SECOND)
        assert await survivor.first_sweep(GAP) == []
    assert await worker.renew(lease) == []
    assert await worker.settle(lease) is None


async def test_a_long_lease_expires_between_short_outages(timed: Timed) -> None:
    """A lease of a day, during which all workers are absent for a minute each night. Here a day is an hour."""
    job = await timed.queue.add("n", 1)
    worker, lease = await claim_and_renew(timed, lock_ms=HOUR)
    survivor = FakeWorker(timed.queue, timed.store)
    await survivor.renew()
    passed, recovered = 0, list[str]()
    while not recovered:
        for step in (MINUTE, GAP - SECOND, GAP - SECOND, GAP - SECOND):
            passed += step
            await timed.clock.advance(step)
            await worker.vanish(lease, for_ms=passed)
            recovered += await survivor.first_sweep(GAP)
        assert passed < 2 * HOUR
    assert recovered == [job.id]
    assert passed >= HOUR
    assert await timed.run() == ["n"]


async def test_after_a_server_restart_a_new_worker_leaves_time_to_renew() -> None:
    async with standalone("--appendonly", "yes", "--appendfsync", "always") as server:
        store = RunningStore("restarted", server.url, (endpoint_of(server),))
        async with open_storage(server.url) as storage, Queue[Any, Any]("q", storage) as queue:
            job = await queue.add("n", 1)
            worker = FakeWorker(queue, store)
            await worker.first_sweep(500)
            [lease] = await worker.claim(lock_ms=2000)
            await worker.renew(lease)
            await asyncio.sleep(0.5)
            server.kill()
            await asyncio.sleep(2.5)  # longer than the lease
            await server.start()
            newcomer = FakeWorker(queue, store)
            await newcomer.renew()
            assert await newcomer.first_sweep(500) == []
            assert await worker.renew(lease) == []
            recovered, began = list[str](), time.monotonic()
            while not recovered:  # from now on it can renew
                await asyncio.sleep(0.2)
                recovered = await newcomer.first_sweep(500)
                assert time.monotonic() - began < 5
            assert recovered == [job.id]


async def test_a_new_worker_after_a_failover_leaves_time_to_renew(timed_alone: Timed) -> None:
    timed = timed_alone
    await timed.queue.add("n", 1)
    worker, lease = await claim_and_renew(timed)
    await pass_unrenewed(timed, worker, lease, MINUTE)
    # The new primary has been up for long as a replica. It is unknown since when clients can write to it.
    await timed.store.ask("HSET", f"{timed.fake_worker.base}:meta2", "server", "the previous primary")
    newcomer = FakeWorker(timed.queue, timed.store)
    await newcomer.renew()
    assert await newcomer.first_sweep(GAP) == []
    assert await worker.renew(lease) == []
    assert await worker.settle(lease) is None


# -- run(until_empty=True) ------------------------------------------------------------------------------------------


async def test_a_burst_waits_for_the_job_of_a_dead_worker(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n", 1)
    dead = FakeWorker(queue, store)
    await dead.renew()
    [lease] = await dead.claim(lock_ms=2000)
    assert lease.id == job.id
    await soon(worker_of(queue, echo, lock_duration=2).run(until_empty=True), 20)
    await job.refresh()
    assert (job.state, job.stalled_count) == ("completed", 1)


async def test_bursts_that_are_shorter_than_the_lease_recover_a_job_too(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n", 1)
    await FakeWorker(queue, store).claim(lock_ms=2000)
    for _ in range(3):
        burst = worker_of(queue, echo, lock_duration=2)
        running = asyncio.ensure_future(burst.run(until_empty=True))
        await asyncio.wait([running], timeout=1)
        burst.stop()
        await soon(running)
    await soon(worker_of(queue, echo, lock_duration=2).run(until_empty=True), 20)
    assert await job.get_state() == "completed"


async def test_a_burst_does_not_reclaim_the_long_job_of_a_live_worker(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, lock_duration=1.5):
        job = await queue.add("n", 1)
        await gate.running()
        await soon(worker_of(queue, echo, lock_duration=30).run(until_empty=True), 10)
        assert await job.get_state() == "active"
        gate.release()
        assert (await ended(job)).state == "completed"


async def test_nothing_remains_of_workers_that_died_before_their_first_renewal(timed: Timed) -> None:
    survivor = timed.fake_worker
    await survivor.renew()
    base = survivor.base
    for _ in range(5):
        await timed.queue.add("plain")
        await timed.queue.add("low", priority=1)
        await timed.queue.add("high", priority=2)
        await timed.queue.add("keyed", key="k")
        dead = FakeWorker(timed.queue, timed.store)
        leases = await dead.claim(4)
        assert len(leases) == 4
        await dead.vanish(*leases)
        await timed.clock.advance(MINUTE)
        await survivor.renew()
        assert len(await survivor.sweep(max_stalled=100)) == 4
        assert len(await timed.run()) == 4
    # Only the worker that is alive is left.
    assert await timed.store.ask("HLEN", f"{base}:consumers") == 2
    assert len(await survivor.consumers()) == 1
    assert await timed.store.ask("ZCARD", f"{base}:alive") == 1
