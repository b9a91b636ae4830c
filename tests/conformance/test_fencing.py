"""Outcomes of runs that lost their job are refused and change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from glidemq_async.jobs.snapshot import entry_of
from tests.support.fake_worker import FakeWorker, Lease
from tests.support.helpers import AnyQueue, Gate, counts, echo, ended, worker_of
from tests.support.stores import RunningStore

CODES = ["c", "f", "r", "d", "b"]


@pytest.fixture
async def first(queue: AnyQueue, store: RunningStore) -> AsyncIterator[FakeWorker]:
    fake_worker = FakeWorker(queue, store)
    yield fake_worker
    await fake_worker.leave()


@pytest.fixture
async def second(queue: AnyQueue, store: RunningStore) -> AsyncIterator[FakeWorker]:
    fake_worker = FakeWorker(queue, store)
    yield fake_worker
    await fake_worker.leave()


async def taken_over(queue: AnyQueue, first: FakeWorker, second: FakeWorker) -> tuple[Lease, Lease]:
    """A job that the first worker has claimed and lost, and that the second worker has claimed."""
    await queue.add("n", 1)
    [old] = await first.claim()
    await first.vanish(old)
    assert await second.sweep() == [old.id]
    [new] = await second.claim()
    assert (new.id, new.fence, old.fence) == (old.id, 2, 1)
    return old, new


@pytest.mark.parametrize("code", CODES)
async def test_a_stale_outcome_does_not_win_over_the_run_that_has_the_job(
    queue: AnyQueue, first: FakeWorker, second: FakeWorker, code: str
) -> None:
    old, new = await taken_over(queue, first, second)
    assert await first.settle(old, code) == "stale"
    assert (await queue.get_job_counts())["active"] == 1
    assert await second.settle(new, "c", payload=b"\x07") is None
    job = await queue.get_job(new.id)
    assert job is not None
    assert (job.state, job.return_value, job.fence, job.stalled_count) == ("completed", 7, 2, 1)


@pytest.mark.everywhere
@pytest.mark.parametrize("code", CODES)
async def test_a_stale_outcome_does_not_change_an_ended_job(
    queue: AnyQueue, first: FakeWorker, second: FakeWorker, code: str
) -> None:
    old, new = await taken_over(queue, first, second)
    await second.settle(new, "c", payload=b"\x07")
    assert await first.settle(old, code) == "stale"
    assert await second.settle(new, code) == "stale"
    found = await counts(queue)
    assert found == {"completed": 1}


@pytest.mark.parametrize("late", CODES)
async def test_a_job_is_never_in_both_final_sets(
    queue: AnyQueue, first: FakeWorker, second: FakeWorker, late: str
) -> None:
    old, new = await taken_over(queue, first, second)
    await second.settle(new, "f")
    await first.settle(old, late)
    found = await counts(queue)
    assert (found.get("completed", 0), found.get("failed", 0)) == (0, 1)


@pytest.mark.parametrize("late", CODES)
async def test_a_stale_outcome_does_not_end_a_job_that_waits_for_its_retry(
    queue: AnyQueue, first: FakeWorker, late: str
) -> None:
    await queue.add("n", 1, attempts=2)
    [lease] = await first.claim()
    assert await first.settle(lease, "r", "60000 broken") is None
    assert await first.settle(lease, late) == "stale"
    assert await counts(queue) == {"delayed": 1}


async def test_ended_jobs_are_not_claimed_again(queue: AnyQueue, first: FakeWorker, second: FakeWorker) -> None:
    await queue.add("n", 1)
    [lease] = await first.claim()
    await first.settle(lease)
    assert await second.claim() == []
    assert await first.renew(lease) == [lease.entry]
    await first.vanish(lease)
    assert await second.sweep() == []
    assert await second.claim() == []


async def test_renewing_never_reclaims_a_job(queue: AnyQueue, first: FakeWorker, second: FakeWorker) -> None:
    old, new = await taken_over(queue, first, second)
    assert await first.renew(old) == [old.entry]
    assert await second.renew(new) == []


async def test_a_call_with_one_stale_run_settles_the_others(
    queue: AnyQueue, store: RunningStore, first: FakeWorker
) -> None:
    await queue.add_bulk([("n", number) for number in range(5)])
    leases = await first.claim(5)
    await queue.remove(leases[2].id)
    outcomes = await asyncio.gather(*(FakeWorker.settle(first, lease) for lease in leases[:1]))
    outcomes += [await first.settle(lease) for lease in leases[1:]]
    assert outcomes == [None, None, "missing", None, None]
    assert (await queue.get_job_counts())["completed"] == 4


async def test_the_counts_stay_correct(queue: AnyQueue, first: FakeWorker, second: FakeWorker) -> None:
    for code in CODES:
        old, new = await taken_over(queue, first, second)
        for _ in range(3):
            await first.settle(old, code)
            await second.settle(new, "c")
    found = await counts(queue)
    assert found == {"completed": len(CODES)}


async def test_a_worker_learns_that_it_lost_its_job(queue: AnyQueue, store: RunningStore) -> None:
    """The next renewal reports it. A message could be lost."""
    gate = Gate()
    async with worker_of(queue, gate, lock_duration=1):
        await queue.add("n", 1)
        held = await gate.running()
        stream = f"glide:{{{queue.name}}}:fifo"
        await store.ask("XACK", stream, "workers", entry_of(held)[1:])
        await gate.stopped()
        assert held.abort.reason == "lease lost"
    await store.ask("XDEL", stream, entry_of(held)[1:])


async def test_a_worker_that_leaves_releases_its_active_jobs(queue: AnyQueue, first: FakeWorker) -> None:
    await queue.add_bulk([("n", number) for number in range(250)])
    assert len(await first.claim(250)) == 250
    await first.leave()
    assert (await queue.get_job_counts())["waiting"] == 250
    async with worker_of(queue, echo, concurrency=50):
        await ended((await queue.get_jobs("waiting", 249, 249))[0])
