"""Plain jobs whose stored data was changed by hand, whose replies were lost, or whose consumer group is gone."""

from __future__ import annotations

from typing import cast

import pytest

from glidemq_async import JobOptions
from tests.support.fake_worker import FakeWorker, Lease
from tests.support.helpers import AnyJob, AnyQueue, counts, echo, ended, job_events, worker_of
from tests.support.stores import RunningStore

everywhere = pytest.mark.everywhere


def fifo_of(queue: AnyQueue) -> str:
    """Return the store key of the stream of waiting jobs."""
    return f"glide:{{{queue.name}}}:fifo"


async def two_of_each(queue: AnyQueue, fake_worker: FakeWorker) -> list[str]:
    """Let two plain jobs complete, two run and two wait; return their ids."""
    jobs = await queue.add_bulk([("n", number) for number in range(6)])
    leases = await fake_worker.claim(4)
    await fake_worker.complete(*leases[:2])
    return [job.id for job in jobs]


async def destroy_group(queue: AnyQueue, store: RunningStore) -> None:
    """Destroy the consumer group as somebody might by hand. Its pending entries are lost with it."""
    await store.ask("XGROUP", "DESTROY", fifo_of(queue), "workers")


@everywhere
@pytest.mark.parametrize("regrouped", [False, True])
async def test_completed_jobs_do_not_run_again_when_the_group_is_destroyed(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, regrouped: bool
) -> None:
    ids = await two_of_each(queue, fake_worker)
    await destroy_group(queue, store)
    if regrouped:
        assert [lease.id for lease in await fake_worker.claim(3)] == ids[2:5]
        await fake_worker.leave()
    else:
        assert await counts(queue) == {"completed": 2, "waiting": 4}
    runs: list[str] = []

    async def note(job: AnyJob) -> None:
        runs.append(job.id)

    async with worker_of(queue, note):
        for job_id in ids[2:]:
            job = await queue.get_job(job_id)
            assert job is not None
            await ended(job)
    assert sorted(runs) == sorted(ids[2:])
    assert await counts(queue) == {"completed": 6}
    assert await queue.check() == []


@everywhere
@pytest.mark.parametrize("regrouped", [False, True])
async def test_jobs_are_listed_in_one_state_when_the_group_is_destroyed(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, regrouped: bool
) -> None:
    ids = await two_of_each(queue, fake_worker)
    await destroy_group(queue, store)
    running: list[str] = []
    if regrouped:
        running = [lease.id for lease in await fake_worker.claim(1) or await fake_worker.claim(2)]
    waiting = [job_id for job_id in ids[2:] if job_id not in running]
    for newest_first in (False, True):
        listed = {
            state: sorted(job.id for job in await queue.get_jobs(state, newest_first=newest_first))
            for state in ("waiting", "active", "completed")
        }
        assert listed == {"waiting": waiting, "active": running, "completed": ids[:2]}
    # A worker meets the repeated entries, and from then on nothing is wrong.
    await fake_worker.leave()
    async with worker_of(queue, echo):
        for job in await queue.get_jobs("waiting"):
            await ended(job)


@everywhere
@pytest.mark.parametrize("regrouped", [False, True])
async def test_draining_keeps_completed_jobs_when_the_group_is_destroyed(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, regrouped: bool
) -> None:
    ids = await two_of_each(queue, fake_worker)
    await destroy_group(queue, store)
    running = await fake_worker.claim(1) if regrouped else []
    assert await queue.drain() == 4 - len(running)
    assert [job.id for job in await queue.get_jobs("completed")] == ids[1::-1]
    assert (await queue.get_job_counts())["waiting"] == 0
    await fake_worker.complete(*running)
    # A claim meets the repeated entries, and from then on nothing is wrong.
    assert await fake_worker.claim() == []


@everywhere
@pytest.mark.parametrize("regrouped", [False, True])
async def test_cleaning_waiting_jobs_keeps_completed_ones_when_the_group_is_destroyed(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, regrouped: bool
) -> None:
    ids = await two_of_each(queue, fake_worker)
    await destroy_group(queue, store)
    running = await fake_worker.claim(1) if regrouped else []
    assert set(await queue.clean(state="waiting")) == set(ids[2:]) - {lease.id for lease in running}
    assert [job.id for job in await queue.get_jobs("completed")] == ids[1::-1]
    await fake_worker.complete(*running)
    # A claim meets the repeated entries, and from then on nothing is wrong.
    assert await fake_worker.claim() == []


@everywhere
async def test_obliterating_ends_when_the_group_is_destroyed(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    await two_of_each(queue, fake_worker)
    await destroy_group(queue, store)
    assert await queue.obliterate(force=True) == 6
    assert await counts(queue) == {}
    assert await store.ask("XLEN", fifo_of(queue)) == 0
    assert await store.ask("EXISTS", f"{fake_worker.base}:results") == 0


@everywhere
async def test_a_run_of_a_destroyed_group_settles_once(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    job = await queue.add("n", 1)
    [old] = await fake_worker.claim()
    await destroy_group(queue, store)
    other = FakeWorker(queue, store)
    [new] = await other.claim()
    assert (old.id, old.entry) == (new.id, new.entry)
    first = await fake_worker.complete(old)
    second = await other.complete(new)
    assert sorted([*first.refused.values(), *second.refused.values()]) == ["stale"]
    assert await counts(queue) == {"completed": 1}
    assert [kind for kind, _ in await job_events(queue, job.id)].count("completed") == 1
    assert await queue.check() == []
    await other.leave()


@everywhere
async def test_an_acknowledgement_by_hand_does_not_change_a_completed_job(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    job = await queue.add("n", 1)
    [lease] = await fake_worker.claim()
    await fake_worker.complete(lease)
    assert await store.ask("XACK", fifo_of(queue), "workers", lease.entry[1:]) == 0
    assert await job.get_state() == "completed"
    assert (await fake_worker.complete(lease)).refused == {0: "stale"}
    assert await counts(queue) == {"completed": 1}
    assert await queue.check() == []


@everywhere
@pytest.mark.parametrize("verb", ["c", "f", "r", "d", "b"])
async def test_a_running_entry_that_was_deleted_creates_no_record(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, verb: str
) -> None:
    await queue.add_bulk([("n", number) for number in range(3)])
    first, second, third = await fake_worker.claim(3)
    await store.ask("XDEL", fifo_of(queue), second.entry[1:])
    refused = await fake_worker.settle(second, verb)
    assert refused == ("missing" if verb != "c" else None)
    assert await queue.get_job(second.id) is None
    assert (await fake_worker.complete(first, third)).refused == {}
    assert await store.ask("EXISTS", f"{fake_worker.base}:job:{second.id}") == 0
    if verb == "c":
        # The outcome was stored, because reading the entry would cost each job a command. The check finds it.
        assert [(found.invariant, found.subject) for found in await queue.check()] == [("I14", second.id)]
        await store.ask("HDEL", f"{fake_worker.base}:results", second.id)
    assert await counts(queue) == {"completed": 2}
    assert await queue.check() == []


@everywhere
async def test_a_waiting_entry_that_was_deleted_blocks_nothing(queue: AnyQueue, store: RunningStore) -> None:
    jobs = await queue.add_bulk([("n", number) for number in range(3)])
    [entry] = cast("list[list[bytes]]", await store.ask("XRANGE", fifo_of(queue), jobs[0].id, jobs[0].id))
    await store.ask("XDEL", fifo_of(queue), entry[0])
    assert await queue.get_job(jobs[0].id) is None
    assert await counts(queue) == {"waiting": 2}
    async with worker_of(queue, echo):
        assert [await job.result(10) for job in jobs[1:]] == [1, 2]
    assert await queue.check() == []


@everywhere
async def test_a_repeated_claim_returns_jobs_of_both_kinds_again(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    options = [JobOptions(), JobOptions(job_id="own"), JobOptions(attempts=2), JobOptions(priority=1), JobOptions()]
    jobs = await queue.add_bulk([("n", number, option) for number, option in enumerate(options)])
    await jobs[4].update_progress(1)
    leases = await fake_worker.claim(5)
    assert {lease.id for lease in leases} == {job.id for job in jobs}
    # The reply is lost, and a user changes two of the jobs before the worker sends the call again.
    await jobs[2].log("a line")
    await jobs[0].remove()
    again = await fake_worker.repeat()
    assert {(job.id, job.entry, job.fence, job.is_plain) for job in again.jobs} == {
        (lease.id, lease.entry, lease.fence, False) for lease in leases if lease.id != jobs[0].id
    }
    assert (await fake_worker.complete(*leases)).refused == {leases.index(lease_of(jobs[0].id, leases)): "missing"}
    assert await counts(queue) == {"completed": 4}
    assert await queue.check() == []


def lease_of(job_id: str, leases: list[Lease]) -> Lease:
    """Return the lease of a job."""
    return next(lease for lease in leases if lease.id == job_id)


@everywhere
async def test_a_repeated_settle_call_completes_plain_jobs_once(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    jobs = await queue.add_bulk([("n", number) for number in range(4)])
    leases = await fake_worker.claim(4)
    await jobs[1].remove()
    first = await fake_worker.complete(*leases)
    again = await fake_worker.repeat()
    assert first.refused == again.refused == {1: "missing"}
    assert await counts(queue) == {"completed": 3}
    assert (await queue.get_metrics("completed")).count == 3


@everywhere
async def test_a_run_that_is_named_twice_completes_once(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    await queue.add_bulk([("n", number) for number in range(2)])
    first, second = await fake_worker.claim(2)
    assert (await fake_worker.complete(first, second, first)).refused == {2: "stale"}
    assert await counts(queue) == {"completed": 2}
    assert await queue.check() == []


@everywhere
async def test_another_worker_does_not_settle_a_plain_run(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    job = await queue.add("n", 1)
    [lease] = await fake_worker.claim()
    other = FakeWorker(queue, store)
    assert (await other.complete(lease, verify=True)).refused == {0: "stale"}
    assert await job.get_state() == "active"
    assert (await fake_worker.complete(lease, verify=True)).refused == {}
    await other.leave()


@everywhere
async def test_a_sweep_reclaims_plain_runs_next_to_completed_ones(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    ids = await two_of_each(queue, fake_worker)
    running = await queue.get_jobs("active")
    assert [job.id for job in running] == ids[2:4]
    await fake_worker.leave()
    assert await counts(queue) == {"completed": 2, "waiting": 4}
    assert [job.id for job in await queue.get_jobs("waiting")] == ids[2:]
    assert await queue.check() == []
