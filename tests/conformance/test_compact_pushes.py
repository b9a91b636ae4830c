"""LIFO, prioritized and keyed jobs that an add claims for an idle worker and pushes to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glidemq_async import JobOptions, Queue
from glidemq_async.functions.wakeup import ClaimNow, LeaseGone
from glidemq_async.storage import Storage
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, Gate, counts, idle, job_events, worker_of
from tests.support.idle_worker import IdleWorker, leases_in
from tests.support.recording_storage import Relay
from tests.support.stores import RunningStore

everywhere = pytest.mark.everywhere
PLAIN, PRIORITIZED, LIFO, KEYED = JobOptions(), JobOptions(priority=2), JobOptions(lifo=True), JobOptions(key="k")
KINDS = [PRIORITIZED, LIFO, KEYED]
each_kind = pytest.mark.parametrize("options", KINDS, ids=["prioritized", "LIFO", "keyed"])


async def list_as_idle(store: RunningStore, worker: IdleWorker) -> None:
    """List a worker as idle although jobs wait, as after a lost wake-up."""
    await worker.wait(slots=0)
    await store.ask("ZADD", f"{worker.base}:idle", 1, worker.name)


async def claims_first(worker: IdleWorker) -> str:
    """Return the id of the job that the worker claims after a wake-up without a push."""
    assert await worker.message() == ClaimNow()
    [job] = (await worker.wait()).jobs
    return job.id


# -- a push starts the job --------------------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize(
    "options",
    [
        PRIORITIZED,
        JobOptions(priority=2, attempts=3, timeout=60),
        LIFO,
        JobOptions(lifo=True, attempts=3),
        KEYED,
        JobOptions(key="ä b", attempts=2),
    ],
)
async def test_an_added_job_runs_without_a_claim_call(
    queue: AnyQueue, idle_worker: IdleWorker, options: JobOptions
) -> None:
    await idle_worker.wait()
    job = await queue.add("n", {"a": 1}, options)
    [lease] = leases_in(pushed := await idle_worker.pushed())
    assert (pushed.jobs[0].id, pushed.jobs[0].name, pushed.jobs[0].fence) == (job.id, "n", 1)
    assert await counts(queue) == {"active": 1}
    assert await idle_worker.renew(lease) == []
    await job.refresh()
    assert (job.state, job.key, job.data) == ("active", options.key, {"a": 1})
    assert (await idle_worker.complete(lease)).refused == {}
    assert await counts(queue) == {"completed": 1}
    assert [kind for kind, _ in await job_events(queue, job.id)] == ["added", "active", "completed"]
    assert await queue.check() == []


@each_kind
async def test_a_worker_makes_one_call_per_pushed_job(storage: Storage, name: str, options: JobOptions) -> None:
    relay = Relay(storage)
    got: list[tuple[int, int, str | None]] = []

    async def note(job: AnyJob) -> int:
        got.append((job.data, job.priority, job.key))
        return int(job.data)

    async with Queue[Any, Any](name, relay) as queue, worker_of(queue, note, concurrency=3) as worker:
        await idle(worker)
        for number in range(3):
            await relay.quiet(queue)
            relay.calls.clear()
            assert await (await queue.add("n", number, options)).result(5) == number
            await relay.quiet(queue)
            assert relay.calls.count("settleAndClaim") == 1
    assert got == [(number, options.priority, options.key) for number in range(3)]


@pytest.mark.parametrize(
    ("older", "newer"), [(JobOptions(priority=5), JobOptions(priority=1)), (LIFO, LIFO)], ids=["prioritized", "LIFO"]
)
async def test_a_job_that_starts_before_an_older_one_is_pushed(
    queue: AnyQueue, store: RunningStore, idle_worker: IdleWorker, older: JobOptions, newer: JobOptions
) -> None:
    await queue.add("n", 1, older)
    await list_as_idle(store, idle_worker)
    first = await queue.add("n", 2, newer)
    assert [job.id for job in (await idle_worker.pushed()).jobs] == [first.id]
    assert await queue.check() == []


async def test_a_call_with_one_such_job_and_others_starts_what_a_claim_starts_first(
    queue: AnyQueue, idle_worker: IdleWorker
) -> None:
    await idle_worker.wait(2)
    jobs = await queue.add_bulk([("n", 1, PRIORITIZED), ("n", 2), ("n", 3)])
    assert [job.id for job in (await idle_worker.pushed()).jobs] == [jobs[1].id, jobs[2].id]
    assert await counts(queue) == {"active": 2, "prioritized": 1}
    assert await queue.check() == []


# -- a claim would start another job, or none -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (PLAIN, PRIORITIZED),
        (PLAIN, LIFO),
        (PLAIN, KEYED),
        (LIFO, PRIORITIZED),
        (LIFO, KEYED),
        (KEYED, PRIORITIZED),
        (PRIORITIZED, PRIORITIZED),
        (KEYED, JobOptions(key="other")),
    ],
)
async def test_a_job_that_starts_before_it_prevents_the_push(
    queue: AnyQueue, store: RunningStore, idle_worker: IdleWorker, older: JobOptions, newer: JobOptions
) -> None:
    first = await queue.add("n", 1, older)
    await list_as_idle(store, idle_worker)
    await queue.add("n", 2, newer)
    assert await claims_first(idle_worker) == first.id
    assert await queue.check() == []


async def test_a_ready_key_prevents_the_push_of_a_lifo_job(
    queue: AnyQueue, store: RunningStore, idle_worker: IdleWorker
) -> None:
    """A claim takes from both in turn."""
    await queue.add("n", 1, KEYED)
    await list_as_idle(store, idle_worker)
    await queue.add("n", 2, LIFO)
    assert await idle_worker.message() == ClaimNow()


@each_kind
async def test_a_released_job_prevents_the_push(
    queue: AnyQueue, store: RunningStore, idle_worker: IdleWorker, options: JobOptions
) -> None:
    old = await queue.add("n", 1)
    other = FakeWorker(queue, store)
    [lease] = await other.claim()
    await other.settle(lease, "b")
    await list_as_idle(store, idle_worker)
    await queue.add("n", 2, options)
    assert await claims_first(idle_worker) == old.id


async def test_an_earlier_job_of_the_same_call_and_key_prevents_the_push(
    queue: AnyQueue, idle_worker: IdleWorker
) -> None:
    await idle_worker.wait()
    await queue.add_bulk([("n", 1, JobOptions(job_id="own", key="k")), ("n", 2, KEYED)])
    assert await claims_first(idle_worker) == "own"
    assert await queue.check() == []


async def test_a_running_job_of_the_key_prevents_the_push(
    queue: AnyQueue, store: RunningStore, idle_worker: IdleWorker
) -> None:
    await queue.add("n", 1, KEYED)
    other = FakeWorker(queue, store)
    [lease] = await other.claim()
    await idle_worker.wait()
    second = await queue.add("n", 2, KEYED)
    assert await counts(queue) == {"active": 1, "key-waiting": 1}
    await other.complete(lease)
    assert await claims_first(idle_worker) == second.id


async def test_limits_of_keys_prevent_the_push_of_a_keyed_job(queue: AnyQueue, idle_worker: IdleWorker) -> None:
    await queue.set_key_limits("other", concurrency=2)
    await idle_worker.wait()
    job = await queue.add("n", 1, KEYED)
    assert await claims_first(idle_worker) == job.id


@each_kind
async def test_limits_of_the_queue_prevent_the_push(
    queue: AnyQueue, idle_worker: IdleWorker, options: JobOptions
) -> None:
    await queue.set_global_concurrency(5)
    await idle_worker.wait()
    job = await queue.add("n", 1, options)
    assert await claims_first(idle_worker) == job.id


@each_kind
async def test_a_lease_of_its_own_prevents_the_push(
    queue: AnyQueue, idle_worker: IdleWorker, options: JobOptions
) -> None:
    await idle_worker.wait()
    job = await queue.add("n", 1, options, lock_duration=5)
    assert await claims_first(idle_worker) == job.id


async def test_the_worker_with_the_timer_is_woken(queue: AnyQueue, idle_worker: IdleWorker) -> None:
    await queue.add("n", 1, delay=60)
    assert (await idle_worker.wait()).due
    job = await queue.add("n", 2, PRIORITIZED)
    assert await claims_first(idle_worker) == job.id


# -- lost pushes ------------------------------------------------------------------------------------------------------


@each_kind
async def test_a_job_that_nobody_receives_waits(queue: AnyQueue, store: RunningStore, options: JobOptions) -> None:
    await queue.connect()
    dead, other = IdleWorker(queue, store), FakeWorker(queue, store)
    await dead.wait(3)
    job = await queue.add("n", 1, options)
    assert not (await counts(queue)).get("active")
    assert [kind for kind, _ in await job_events(queue, job.id)] == ["added"]
    assert [lease.id for lease in await other.claim(4)] == [job.id]
    assert await queue.check() == []
    await other.leave()


@everywhere
@each_kind
async def test_the_next_call_returns_the_job_of_a_lost_push(
    queue: AnyQueue, idle_worker: IdleWorker, options: JobOptions
) -> None:
    await idle_worker.wait(2)
    lost = await queue.add("n", 1, options)
    [pushed] = (await idle_worker.pushed()).jobs
    reply = await idle_worker.wait(2)
    assert [(job.id, job.entry, job.data) for job in reply.jobs] == [(lost.id, pushed.entry, pushed.data)]
    assert [job.entry for job in (await idle_worker.repeat()).jobs] == [pushed.entry]
    assert await counts(queue) == {"active": 1}


@each_kind
async def test_a_push_that_has_arrived_is_not_returned(
    queue: AnyQueue, idle_worker: IdleWorker, options: JobOptions
) -> None:
    await idle_worker.wait(2)
    await queue.add("n", 1, options)
    await idle_worker.pushed()
    assert (await idle_worker.wait(1, has_push=True)).jobs == []


@each_kind
async def test_a_lost_push_whose_job_was_removed_is_not_returned(
    queue: AnyQueue, idle_worker: IdleWorker, options: JobOptions
) -> None:
    await idle_worker.wait(2)
    job = await queue.add("n", 1, options)
    await idle_worker.pushed()
    await job.remove()
    assert isinstance(await idle_worker.message(), LeaseGone)
    assert (await idle_worker.wait(1)).jobs == []
    assert await queue.check() == []


@everywhere
@each_kind
async def test_a_worker_that_dies_with_a_push_stalls_its_job(
    queue: AnyQueue, store: RunningStore, idle_worker: IdleWorker, options: JobOptions
) -> None:
    await idle_worker.wait()
    job = await queue.add("n", 1, options)
    [lease] = leases_in(await idle_worker.pushed())
    await idle_worker.vanish(lease)
    other = FakeWorker(queue, store)
    assert await other.sweep() == [job.id]
    await job.refresh()
    assert job.stalled_count == 1
    assert (await idle_worker.complete(lease)).refused == {0: "stale"}
    assert [again.id for again in await other.claim()] == [job.id]
    assert await queue.check() == []
    await other.leave()


# -- the order of a key -----------------------------------------------------------------------------------------------


async def test_the_next_job_of_a_key_waits_for_a_pushed_one(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, concurrency=5) as worker:
        await idle(worker)
        first = await queue.add("n", 1, KEYED)
        assert (await gate.running()).id == first.id
        second = await queue.add("n", 2, KEYED)
        assert await counts(queue) == {"active": 1, "key-waiting": 1}
        gate.release()
        await asyncio.gather(first.result(5), second.result(5))
    assert await queue.check() == []
