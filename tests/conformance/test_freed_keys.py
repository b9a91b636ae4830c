"""A call that ends runs of ordering keys, and claims the jobs that wait behind them."""

from __future__ import annotations

import pytest

from glidemq_async import FlowJob, FlowProducer, JobOptions, RateLimit
from glidemq_async.functions.wakeup import ClaimNow
from tests.conformance.test_key_lines import add_keyed, make_old, run_order
from tests.support.clocked_queue import MINUTE, Timed
from tests.support.fake_worker import FakeWorker, Lease, leases_of
from tests.support.helpers import AnyQueue
from tests.support.idle_worker import IdleWorker
from tests.support.stores import RunningStore

pytestmark = pytest.mark.everywhere


async def turn(fake_worker: FakeWorker, slots: int, *leases: Lease) -> list[Lease]:
    """Complete these runs and claim with one call. Return the leases of the claimed jobs."""
    return leases_of(await fake_worker.claim_directly(slots, 30_000, *leases))


def ids_of(leases: list[Lease]) -> list[str]:
    return [lease.id for lease in leases]


@pytest.mark.parametrize("number", [1, 3, 40])
async def test_a_call_starts_the_jobs_behind_its_runs(queue: AnyQueue, fake_worker: FakeWorker, number: int) -> None:
    keys = [f"k{n}" for n in range(number)]
    ids = await add_keyed(queue, *keys * 3)
    leases = await fake_worker.claim(number)
    for step in (1, 2):
        leases = await turn(fake_worker, number, *leases)
        # On a slow server the call may end after the first step of its claim, which has 8 jobs or more.
        assert len(leases) >= min(number, 8)
        if len(leases) < number:
            leases += await fake_worker.claim(number - len(leases))
        assert ids_of(leases) == ids[step * number : (step + 1) * number]
        assert await queue.check() == []
    assert await turn(fake_worker, number, *leases) == []
    assert await queue.check() == []


async def test_the_keys_are_served_in_turns(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    ids = await add_keyed(queue, *["a", "b", "c"] * 3, "d", "e")
    second = await turn(fake_worker, 4, *await fake_worker.claim(3))
    assert ids_of(second) == [ids[9], ids[10], ids[3], ids[4]]
    assert await queue.check() == []
    third = await turn(fake_worker, 3, *second)
    assert ids_of(third) == [ids[5], ids[6], ids[7]]
    assert await queue.check() == []
    assert await fake_worker.claim(3) == []
    await fake_worker.complete(*third)
    assert await run_order(fake_worker) == [ids[8]]


async def test_other_sources_keep_their_turns(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    await add_keyed(queue, *["a", "b"] * 5)
    await queue.add_bulk([("n", None, JobOptions(lifo=n % 2 == 0)) for n in range(20)])
    leases, order = await fake_worker.claim(6), list[str]()
    while leases:
        order += ["key" if lease.key else "other" for lease in leases]
        leases = await turn(fake_worker, 6, *leases)
        assert await queue.check() == []
    assert order.count("key") == 10
    assert "key" in order[:6]
    assert "key" in order[6:12]


async def test_jobs_that_the_slots_do_not_hold_wait_for_the_next_claim(
    queue: AnyQueue, fake_worker: FakeWorker
) -> None:
    ids = await add_keyed(queue, *["a", "b", "c"] * 2)
    leases = await turn(fake_worker, 1, *await fake_worker.claim(3))
    assert await queue.check() == []
    assert ids_of(leases + await fake_worker.claim(5)) == ids[3:]


async def test_a_line_of_an_earlier_build_is_found(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    ids = await add_keyed(queue, "a", "a", "b", "b", "c")
    leases = await fake_worker.claim(3)
    await make_old(store, fake_worker.base)
    assert ids_of(await turn(fake_worker, 3, *leases)) == [ids[1], ids[3]]
    assert await queue.check() == []


async def test_a_parent_that_enters_the_line_of_an_ended_run_starts_alone(
    queue: AnyQueue, fake_worker: FakeWorker
) -> None:
    """The same call ends the run of the key and the last child of the parent."""
    await add_keyed(queue, "k", "k")
    async with FlowProducer(queue.storage) as flows:
        await flows.add(
            FlowJob("parent", queue.name, options=JobOptions(key="k"), children=[FlowJob("child", queue.name)])
        )
    leases = await fake_worker.claim(2)
    assert sorted(lease.name for lease in leases) == ["child", "n"]
    running = await turn(fake_worker, 5, *leases)
    assert len(running) == 1
    assert await queue.check() == []
    assert [lease.name for lease in await turn(fake_worker, 5, *running)] == ["parent"]


async def test_a_parent_waits_for_its_key_if_the_claim_refuses_its_last_child(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    """The claim finds that the child is damaged, and the same call starts a job of the key of the parent."""
    ids = await add_keyed(queue, "k", "k")
    [lease] = await fake_worker.claim()
    child = FlowJob("child", queue.name, on_failure="ignore")
    async with FlowProducer(queue.storage) as flows:
        node = await flows.add(FlowJob("parent", queue.name, options=JobOptions(key="k"), children=[child]))
    record = f"{fake_worker.base}:job:{node.children[0].job.id}"
    await store.ask("HDEL", record, "name")
    running = await turn(fake_worker, 5, lease)
    await store.ask("HSET", record, "name", "child")
    assert ids_of(running) == ids[1:]
    assert await queue.check() == []
    assert [lease.name for lease in await turn(fake_worker, 5, *running)] == ["parent"]


async def test_a_claim_that_a_rate_limit_stops_makes_the_key_ready(timed: Timed) -> None:
    """The worker is woken at the instant at which the limit lets the next job start."""
    queue = timed.queue
    ids = await add_keyed(queue, "k", "k")
    await queue.set_global_rate_limit(RateLimit(1, 60))
    worker = IdleWorker(queue, timed.store)
    async with worker.listening():
        [lease] = leases_of(await worker.wait())
        reply = await worker.settle_and_wait(lease)
        assert reply.jobs == []
        assert 0 < reply.due - reply.now <= MINUTE
        assert await queue.check() == []
        await timed.clock.advance(reply.due - reply.now)
        assert ids_of(leases_of(await worker.wait())) == ids[1:]
        await worker.leave()


async def test_each_job_that_a_key_with_a_limit_may_start_wakes_a_worker(queue: AnyQueue, store: RunningStore) -> None:
    """The second job comes behind the first one, and the key may run both."""
    await queue.set_key_limits(None, concurrency=2)
    workers = [IdleWorker(queue, store) for _ in range(2)]
    async with workers[0].listening(), workers[1].listening():
        for worker in workers:
            await worker.wait(accepts_pushes=False)
        await queue.add("n", key="k")
        await queue.add("n", key="k")
        for worker in workers:
            assert await worker.message() == ClaimNow()
            await worker.leave()
