"""Only adding creates records. Entries without a record block nothing."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import JobOptions, Queue
from glidemq_async.functions.callers import Functions
from glidemq_async.storage import Storage
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, counts, echo, ended, history, worker_of
from tests.support.stores import RunningStore


async def records(store: RunningStore) -> list[str]:
    """Return the keys that belong to single jobs."""
    return [key for key in await store.keys() if ":job:" in key or ":logs:" in key]


@pytest.mark.everywhere
@pytest.mark.parametrize("code", ["c", "f", "r", "d", "b"])
async def test_settling_a_removed_job_creates_no_record(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, code: str
) -> None:
    job = await queue.add("n", 1)
    [lease] = await fake_worker.claim()
    await job.remove()
    assert await fake_worker.settle(lease, code) == "missing"
    assert await records(store) == []
    assert set((await queue.get_job_counts()).values()) == {0}


@pytest.mark.parametrize("code", ["c", "f", "r", "d", "b"])
async def test_settling_a_job_with_a_deleted_record_creates_none(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, code: str
) -> None:
    await queue.add("n", 1, job_id="own")
    [lease] = await fake_worker.claim()
    await store.ask("DEL", f"{fake_worker.base}:job:{lease.id}")
    assert await fake_worker.settle(lease, code) == "missing"
    assert await records(store) == []


@pytest.mark.everywhere
@pytest.mark.parametrize("code", ["c", "f", "b"])
@pytest.mark.parametrize("kind", [{}, {"lifo": True}])
async def test_a_stale_outcome_of_a_job_with_a_deleted_record_removes_the_rest_of_it(
    queue: AnyQueue,
    functions: Functions,
    store: RunningStore,
    fake_worker: FakeWorker,
    kind: dict[str, Any],
    code: str,
) -> None:
    """The job is not running any more, and a client waits for its result."""
    job = await queue.add("n", 1, **kind)
    [lease] = await fake_worker.claim()
    assert await fake_worker.settle(lease, "b") is None
    await functions.job_waiters.add(job.id, "client")
    await store.ask("DEL", f"{fake_worker.base}:job:{job.id}")
    assert await fake_worker.settle(lease, code) == "missing"
    assert await store.ask("EXISTS", f"{fake_worker.base}:waiters") == 0
    assert await fake_worker.claim() == []
    assert await queue.check() == []


async def test_reclaiming_does_not_restore_a_removed_job(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    job = await queue.add("n", 1)
    [lease] = await fake_worker.claim()
    await job.remove()
    await fake_worker.vanish(lease)
    assert await fake_worker.sweep() == []
    assert await fake_worker.claim() == []
    assert await records(store) == []


async def test_reclaiming_drops_an_entry_without_a_record(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    await queue.add("n", 1, job_id="own")
    [lease] = await fake_worker.claim()
    await store.ask("DEL", f"{fake_worker.base}:job:{lease.id}")
    await fake_worker.vanish(lease)
    assert await fake_worker.sweep() == []
    assert await records(store) == []
    assert (await queue.get_job_counts())["active"] == 0
    assert (await history(queue))[-1].kind == "dropped"


async def test_a_waiting_entry_without_a_record_does_not_block_later_ones(queue: AnyQueue, store: RunningStore) -> None:
    jobs = await queue.add_bulk([("n", number, JobOptions(job_id=f"own-{number}")) for number in range(3)])
    await store.ask("DEL", f"glide:{{{queue.name}}}:job:{jobs[0].id}")
    async with worker_of(queue, echo):
        assert await jobs[1].result(10) == 1
        assert await jobs[2].result(10) == 2
    assert set((await queue.get_job_counts()).values()) == {0, 2}


async def test_a_delayed_entry_without_a_record_does_not_block_later_ones(queue: AnyQueue, store: RunningStore) -> None:
    gone = await queue.add("n", 1, delay=0.05)
    due = await queue.add("n", 2, delay=0.06)
    await store.ask("DEL", f"glide:{{{queue.name}}}:job:{gone.id}")
    async with worker_of(queue, echo):
        assert await due.result(10) == 2


async def test_expired_jobs_do_not_block_delayed_ones(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number, JobOptions(delay=0.05, ttl=0.01)) for number in range(500)])
    live = await queue.add("n", "live", delay=0.06)
    async with worker_of(queue, echo):
        assert await live.result(10) == "live"


async def test_a_worker_that_dies_after_its_claim_loses_nothing(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    job = await queue.add("n", 1)
    late = await queue.add("n", 2, delay=0.01)
    leases = await fake_worker.claim(2)
    while len(leases) < 2:
        leases += await fake_worker.claim(1)
    await fake_worker.vanish(*leases)
    other = FakeWorker(queue, store)
    assert sorted(await other.sweep()) == sorted([job.id, late.id])
    async with worker_of(queue, echo):
        assert [await job.result(10), await late.result(10)] == [1, 2]
    await job.refresh()
    assert (job.stalled_count, job.attempts_made, job.fence) == (1, 1, 2)


@pytest.mark.parametrize("custom", ["007", "2", "9" * 20, "18446744073709551616"])
async def test_custom_ids_do_not_disturb_the_counter(queue: AnyQueue, custom: str) -> None:
    jobs = [await queue.add("n", 0), await queue.add("n", "custom", job_id=custom)]
    jobs += [await queue.add("n", number) for number in range(1, 6)]
    jobs += await queue.add_bulk([("n", number) for number in range(6, 12)])
    assert [job.outcome for job in jobs] == ["added"] * 13
    assert len({job.id for job in jobs}) == 13
    stored = [await queue.get_job(job.id) for job in jobs]
    assert [job and job.data for job in stored] == [0, "custom", *range(1, 12)]


async def test_generated_ids_avoid_custom_ones_of_the_same_call(queue: AnyQueue) -> None:
    jobs = await queue.add_bulk(
        [("n", 0), ("n", "two", JobOptions(job_id="2")), ("n", 1), ("n", "three", JobOptions(job_id="3")), ("n", 2)]
    )
    assert [job.outcome for job in jobs] == ["added"] * 5
    assert len({job.id for job in jobs}) == 5
    stored = [await queue.get_job(job.id) for job in jobs]
    assert [job and job.data for job in stored] == [0, "two", 1, "three", 2]


@pytest.mark.everywhere
@pytest.mark.parametrize("queue_name", ["t[1]", "a*b?c", "b\\s^-", "ünïcode 😀", "x" * 256])
async def test_any_permitted_name_works(storage: Storage, queue_name: str) -> None:
    async with Queue[Any, Any](queue_name, storage) as queue, Queue[Any, Any]("t1", storage) as other:
        await other.add("n", "of another queue")
        async with worker_of(queue, echo):
            job = await queue.add("n", 1, job_id="j[1]*")
            assert await job.result(10) == 1
            await job.log("line")
        assert (await queue.get_job_counts())["completed"] == 1
        assert [job.id for job in await queue.get_jobs("completed")] == ["j[1]*"]
        assert await queue.check() == []
        assert await other.count() == 1


@pytest.mark.everywhere
async def test_a_name_with_wildcards_is_checked_literally(storage: Storage, store: RunningStore) -> None:
    """The check of `t[1]` sees its own keys, not the keys of `t1`."""
    async with Queue[Any, Any]("t[1]", storage) as queue, Queue[Any, Any]("t1", storage) as other:
        await queue.add("n")
        await other.add("n")
        await store.ask("SET", "glide:{t[1]}:stray", 1)
        await store.ask("SET", "glide:{t1}:other-stray", 1)
        assert [finding.subject for finding in await queue.check()] == ["glide:{t[1]}:stray"]
        await store.ask("DEL", "glide:{t[1]}:stray")
        await store.ask("DEL", "glide:{t1}:other-stray")


async def test_retrying_leaves_a_job_in_one_set_and_gives_it_all_its_attempts(queue: AnyQueue) -> None:
    runs: list[int] = []

    async def fail(job: AnyJob) -> None:
        runs.append(job.attempts_made)
        raise ValueError("no")

    async with worker_of(queue, fail):
        job = await ended(await queue.add("n", attempts=2))
        await queue.pause()
        assert await queue.retry_jobs() == 1
        assert await counts(queue) == {"waiting": 1}
        await queue.resume()
        await ended(job)
    assert runs == [0, 1, 0, 1]
    assert job.attempts_made == 2
