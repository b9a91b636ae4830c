"""Plain jobs: they have no record until something must be stored for them, and behave like any other job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import pytest

from glidemq_async import JobFailed, JobNotFound, JobOptions, JobStateError
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, Gate, counts, echo, ended, job_events, records, soon, worker_of
from tests.support.stores import RunningStore
from tests.support.waiting_jobs import waits_for_results

State: TypeAlias = Literal["waiting", "active", "completed"]
STATES: tuple[State, ...] = ("waiting", "active", "completed")

everywhere = pytest.mark.everywhere
in_every_state = pytest.mark.parametrize("state", STATES)


async def job_in(state: State, queue: AnyQueue, fake_worker: FakeWorker) -> AnyJob:
    """Return a plain job in this state. It waits between two others."""
    _, job, _ = await queue.add_bulk([("n", number) for number in range(3)])
    if state != "waiting":
        leases = await fake_worker.claim(2)
        assert leases[1].id == job.id
        if state == "completed":
            await fake_worker.complete(leases[1])
    assert await job.get_state() == state
    return job


async def finish_all(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    """Hand the running jobs back, and run all jobs to their ends. Nothing is wrong or left over."""
    await fake_worker.leave()
    async with worker_of(queue, echo):
        for job in await queue.get_jobs("waiting"):
            await ended(job)
    assert await queue.check() == []
    assert {state for state, number in (await queue.get_job_counts()).items() if number} <= {"completed", "failed"}


@everywhere
async def test_a_plain_job_runs_without_a_record(queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker) -> None:
    one, two = await queue.add("n", 1), await queue.add("n", 2, attempts=3, timeout=9)
    assert await records(queue, store) == set()
    leases = await fake_worker.claim(2)
    assert [(lease.id, lease.fence) for lease in leases] == [(one.id, 1), (two.id, 1)]
    await fake_worker.renew(*leases)
    assert [job.id for job in await queue.get_jobs("active")] == [one.id, two.id]
    await fake_worker.complete(*leases)
    assert await records(queue, store) == set()
    for job in (one, two):
        await job.refresh()
        assert (job.state, job.fence, job.attempts_made, job.return_value) == ("completed", 1, 1, None)
        assert [kind for kind, _ in await job_events(queue, job.id)] == ["added", "active", "completed"]
    assert await counts(queue) == {"completed": 2}


@everywhere
@in_every_state
async def test_a_plain_job_can_be_read_in_every_state(queue: AnyQueue, fake_worker: FakeWorker, state: State) -> None:
    job = await job_in(state, queue, fake_worker)
    found = await queue.get_job(job.id)
    assert found is not None
    assert (found.name, found.data, found.state, found.created_at) == ("n", 1, state, job.created_at)
    assert (found.processed_at is None, found.finished_at is None) == (state == "waiting", state != "completed")
    assert [each.id for each in await queue.search_jobs(state=state, data=1)] == [job.id]
    await finish_all(queue, fake_worker)


@everywhere
@in_every_state
async def test_updates_of_a_plain_job_stay(queue: AnyQueue, fake_worker: FakeWorker, state: State) -> None:
    job = await job_in(state, queue, fake_worker)
    await job.log("by hand")
    await job.update_progress(7)
    await job.update_data("changed")
    assert await job.get_state() == state
    await fake_worker.leave()
    async with worker_of(queue, echo):
        await ended(job)
    assert (job.data, job.progress, await queue.get_job_logs(job.id)) == ("changed", 7, ["by hand"])
    assert job.return_value == (None if state == "completed" else "changed")
    await finish_all(queue, fake_worker)


@everywhere
@pytest.mark.parametrize("kind", ["progress", "data", "log"])
async def test_a_run_updates_its_plain_job_and_keeps_its_lease(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kind: Literal["progress", "data", "log"]
) -> None:
    job = await queue.add("n", 1)
    [lease] = await fake_worker.claim()
    assert await fake_worker.update(lease, kind, "x" if kind == "log" else b"\x05") == "ok"
    assert await records(queue, store) == {job.id}
    assert await fake_worker.renew(lease) == []
    assert (await fake_worker.complete(lease)).refused == {}
    await job.refresh()
    assert (job.state, job.fence) == ("completed", 1)
    assert await store.ask("EXISTS", f"{fake_worker.base}:recorded", f"{fake_worker.base}:started") == 0
    assert await queue.check() == []


@everywhere
@pytest.mark.parametrize("verb", ["c", "f", "r", "d", "b", "l"])
async def test_a_renewed_run_leaves_no_trace(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, verb: str
) -> None:
    await queue.add("n", 1)
    [lease] = await fake_worker.claim()
    assert await fake_worker.renew(lease) == []
    assert await store.ask("HLEN", f"{fake_worker.base}:started") == 1
    assert await fake_worker.settle(lease, verb) is None
    assert await store.ask("EXISTS", f"{fake_worker.base}:started") == 0


@everywhere
async def test_the_start_of_a_renewed_run_is_kept(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    job = await queue.add("n", 1)
    [lease] = await fake_worker.claim()
    await asyncio.sleep(0.05)
    await fake_worker.renew(lease)
    assert await fake_worker.claim() == []  # the stored reply to the last call does not name the job any more
    await job.refresh()
    began = job.processed_at
    assert began is not None
    assert began.timestamp() * 1000 == pytest.approx(int(lease.plain_since), abs=1)
    await fake_worker.complete(lease)
    await job.refresh()
    assert job.processed_at == began


@everywhere
@in_every_state
async def test_a_plain_job_can_be_removed(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, state: State
) -> None:
    job = await job_in(state, queue, fake_worker)
    assert await queue.remove(job.id)
    assert not await queue.remove(job.id)
    assert await queue.get_job(job.id) is None
    assert job.id not in await records(queue, store)
    assert await job_events(queue, job.id) != []
    with pytest.raises(JobNotFound):
        await job.update_progress(1)
    await finish_all(queue, fake_worker)
    assert (await queue.get_job_counts())["completed"] == 2


@everywhere
@in_every_state
async def test_a_plain_job_can_be_revoked_before_its_end(
    queue: AnyQueue, fake_worker: FakeWorker, state: State
) -> None:
    job = await job_in(state, queue, fake_worker)
    if state == "completed":
        with pytest.raises(JobStateError):
            await job.revoke("late")
    else:
        assert await job.revoke("no need") == (state == "waiting")
        await finish_all(queue, fake_worker)
        await job.refresh()
        assert (job.state, job.failed_reason) == ("failed", "revoked: no need")
    await finish_all(queue, fake_worker)


@everywhere
@in_every_state
async def test_only_an_ended_plain_job_can_be_retried(queue: AnyQueue, fake_worker: FakeWorker, state: State) -> None:
    job = await job_in(state, queue, fake_worker)
    if state == "completed":
        await job.retry()
        assert await job.get_state() == "waiting"
        assert [each.data for each in await queue.get_jobs("waiting")] == [2, 1]
    else:
        with pytest.raises(JobStateError):
            await job.retry()
    await finish_all(queue, fake_worker)
    await job.refresh()
    assert job.return_value == 1


@everywhere
@in_every_state
async def test_only_a_waiting_plain_job_changes_its_place(
    queue: AnyQueue, fake_worker: FakeWorker, state: State
) -> None:
    changes: list[tuple[Callable[[AnyJob], Awaitable[None]], str]] = [
        (lambda job: job.change_priority(3), "prioritized"),
        (lambda job: job.change_delay(60), "delayed"),
    ]
    for change, place in changes:
        job = await job_in(state, queue, fake_worker)
        added = job.created_at
        if state == "waiting":
            await change(job)
            assert await job.get_state() == place
            if place == "delayed":
                await job.promote()
        else:
            with pytest.raises(JobStateError):
                await change(job)
        await job.refresh()
        assert job.created_at == added
        await finish_all(queue, fake_worker)
        await job.remove()


@everywhere
@in_every_state
async def test_only_an_ended_plain_job_gets_a_time_to_live(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, state: State
) -> None:
    job = await job_in(state, queue, fake_worker)
    if state == "completed":
        await job.update_result_ttl(600)
        assert await store.ask("ZCARD", f"{fake_worker.base}:held") == 1
        await job.update_result_ttl(None)
        assert await store.ask("EXISTS", f"{fake_worker.base}:held") == 0
        await job.update_result_ttl(0.001)
        await asyncio.sleep(0.01)
        assert await queue.get_job(job.id) is None
    else:
        with pytest.raises(JobStateError):
            await job.update_result_ttl(600)
    await fake_worker.sweep()
    await finish_all(queue, fake_worker)


@everywhere
@in_every_state
async def test_the_end_of_a_plain_job_can_be_awaited(queue: AnyQueue, fake_worker: FakeWorker, state: State) -> None:
    job = await job_in(state, queue, fake_worker)
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(job.result(10)) for _ in range(2)]
        if state == "active":
            await waits_for_results(queue, 2)
            await fake_worker.leave()
        async with worker_of(queue, echo):
            results = [await soon(wait) for wait in waits]
    assert results == [None if state == "completed" else 1] * 2
    await finish_all(queue, fake_worker)


@everywhere
@pytest.mark.parametrize("state", ["waiting", "active"])
async def test_who_awaits_a_plain_job_learns_of_its_removal(
    queue: AnyQueue, fake_worker: FakeWorker, state: State
) -> None:
    job = await job_in(state, queue, fake_worker)
    wait = asyncio.ensure_future(job.result(10))
    await waits_for_results(queue)
    await job.remove()
    with pytest.raises(JobNotFound):
        await soon(wait)
    await finish_all(queue, fake_worker)


@everywhere
async def test_a_plain_job_that_fails_has_all_its_attempts(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    runs: list[tuple[int, int]] = []

    async def fail(job: AnyJob) -> None:
        runs.append((job.attempts_made, job.fence))
        raise ValueError("no")

    async with worker_of(queue, fail):
        job = await queue.add("n", 1, attempts=3)
        with pytest.raises(JobFailed, match="no"):
            await job.result(10)
    await job.refresh()
    assert runs == [(0, 1), (1, 2), (2, 3)]
    assert (job.state, job.attempts_made, job.failure_cause) == ("failed", 3, "retries_exhausted")
    await job.retry()
    await finish_all(queue, fake_worker)
    await job.refresh()
    assert (job.state, job.return_value) == ("completed", 1)


@everywhere
async def test_a_plain_run_whose_worker_died_starts_again(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    jobs = await queue.add_bulk([("n", number) for number in range(3)])
    leases = await fake_worker.claim(3)
    await fake_worker.renew(*leases)
    await fake_worker.vanish(*leases)
    other = FakeWorker(queue, store)
    assert sorted(await other.sweep()) == sorted(job.id for job in jobs)
    assert await fake_worker.settle(leases[0]) == "stale"
    assert await store.ask("EXISTS", f"{fake_worker.base}:started") == 0
    await finish_all(queue, fake_worker)
    for job in jobs:
        await job.refresh()
        assert (job.state, job.stalled_count, job.fence) == ("completed", 1, 2)


@everywhere
async def test_a_plain_run_honours_its_own_lease(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    short, long = await queue.add("n", 1, lock_duration=2), await queue.add("n", 2, lock_duration=600)
    leases = await fake_worker.claim(2)
    await fake_worker.vanish(*leases, for_ms=60_000)
    assert await fake_worker.sweep() == [short.id]
    assert (await fake_worker.complete(leases[1])).refused == {}
    assert await long.get_state() == "completed"
    await finish_all(queue, fake_worker)


@everywhere
async def test_a_running_plain_job_can_be_revoked_by_its_client(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate):
        job = await queue.add("n", 1)
        await gate.running()
        assert not await queue.revoke(job.id)
        await gate.stopped()
        await ended(job)
    assert (job.state, job.failure_cause) == ("failed", "revoked")


@everywhere
async def test_adds_of_mixed_kinds_keep_their_order(queue: AnyQueue, store: RunningStore) -> None:
    def kind(number: int) -> JobOptions:
        return [JobOptions(), JobOptions(job_id=f"own-{number}"), JobOptions(attempts=2), JobOptions(ttl=600)][
            number % 4
        ]

    jobs = await queue.add_bulk([("n", number, kind(number)) for number in range(40)])
    assert [job.outcome for job in jobs] == ["added"] * 40
    assert len(await records(queue, store)) == 10
    assert [job.data for job in await queue.get_jobs("waiting", 0, 99)] == list(range(40))
    seen: list[int] = []

    async def note(job: AnyJob) -> None:
        seen.append(job.data)

    async with worker_of(queue, note, concurrency=1):
        for job in jobs:
            await ended(job)
    assert seen == list(range(40))
    assert await queue.check() == []


@everywhere
async def test_mixed_adds_report_duplicates_at_their_positions(queue: AnyQueue) -> None:
    first = await queue.add("n", "first")
    jobs = await queue.add_bulk(
        [("n", 0), ("n", 1, JobOptions(job_id=first.id)), ("n", 2), ("n", 3, JobOptions(job_id="own")),
         ("n", 4, JobOptions(job_id="own")), ("n", 5)]
    )  # fmt: skip
    assert [job.outcome for job in jobs] == ["added", "duplicate", "added", "added", "duplicate", "added"]
    assert (jobs[1].id, jobs[4].id) == (first.id, "own")
    assert len({job.id for job in jobs}) == 5
    assert [job.data for job in await queue.get_jobs("waiting")] == ["first", 0, 2, 3, 5]


@everywhere
@in_every_state
async def test_an_own_id_that_equals_the_id_of_a_plain_job_is_taken(
    queue: AnyQueue, fake_worker: FakeWorker, state: State
) -> None:
    job = await job_in(state, queue, fake_worker)
    again = await queue.add("n", "again", job_id=job.id)
    assert again.outcome == ("completed" if state == "completed" else "duplicate")
    await job.refresh()
    assert job.data == 1
    await finish_all(queue, fake_worker)
    await job.remove()
    assert (await queue.add("n", "again", job_id=job.id)).outcome == "added"
    await finish_all(queue, fake_worker)


@everywhere
async def test_generated_ids_pass_over_own_ids(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    first = await queue.add("n", 0)
    own = [str(int(first.id) + ahead) for ahead in (2, 3, 7)]
    for number in own:
        await queue.add("n", number, job_id=number)
    jobs = await queue.add_bulk([("n", number) for number in range(12)])
    jobs.append(await queue.add("n", 12))
    assert not {job.id for job in jobs} & set(own)
    assert len({job.id for job in jobs}) == 13
    await finish_all(queue, fake_worker)
    assert (await queue.get_job_counts())["completed"] == 17
