"""Removing, retrying and revoking a job in every state."""

from __future__ import annotations

import asyncio

import pytest

from glidemq_async import JobFailed, JobNotFound, JobStateError
from tests.support.clocked_queue import Timed
from tests.support.helpers import AnyJob, AnyQueue, Gate, Heard, echo, ended, job_events, worker_of
from tests.support.stores import RunningStore
from tests.support.waiting_jobs import waits_for_results


async def fail(job: AnyJob) -> None:
    raise ValueError("no")


async def job_in(queue: AnyQueue, state: str) -> AnyJob:
    """Return a job in a state in which it stays."""
    if state == "delayed":
        return await queue.add("n", 1, delay=60)
    job = await queue.add("n", 1, attempts=2)
    if state != "waiting":
        async with worker_of(queue, echo if state == "completed" else fail):
            await ended(job)
    assert await job.get_state() == state
    return job


STATES = ["waiting", "delayed", "completed", "failed"]


@pytest.mark.everywhere
@pytest.mark.parametrize("state", STATES)
async def test_a_job_can_be_removed_in_every_state(queue: AnyQueue, store: RunningStore, state: str) -> None:
    job = await job_in(queue, state)
    await job.log("a line")
    await job.remove()
    assert await queue.get_job(job.id) is None
    assert set((await queue.get_job_counts()).values()) == {0}
    assert not [key for key in await store.keys() if ":job:" in key or ":logs:" in key]
    assert ("removed", state) in await job_events(queue, job.id)
    with pytest.raises(JobNotFound, match="remove"):
        await job.remove()
    assert await queue.remove(job.id) is False


@pytest.mark.everywhere
async def test_removing_an_active_job_stops_it(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate) as worker:
        lost = Heard(worker, "lease_lost")
        job = await queue.add("n", 1)
        held = await gate.running()
        assert await queue.remove(job.id) is True
        await gate.stopped()
        assert held.abort.reason == "lease lost"
        assert (await lost.next())[0].id == job.id
        assert await queue.get_job(job.id) is None
        gate.release()
        assert await queue.add_and_wait("n", 2, wait_timeout=10) == 2


@pytest.mark.everywhere
@pytest.mark.parametrize("state", ["completed", "failed"])
async def test_retrying_by_hand_resets_the_job(queue: AnyQueue, state: str) -> None:
    job = await job_in(queue, state)
    created = job.created_at
    await job.update_progress(5)
    await job.retry()
    await job.refresh()
    assert (job.state, job.attempts_made, job.failed_reason, job.return_value) == ("waiting", 0, None, None)
    assert (job.progress, job.finished_at, job.stacktrace, job.created_at) == (None, None, None, created)
    async with worker_of(queue, echo):
        assert await job.result(10) == 1
    await job.refresh()
    assert (job.state, job.attempts_made, job.created_at) == ("completed", 1, created)
    counts = await queue.get_job_counts()
    assert (counts["completed"], counts["failed"]) == (1, 0)


@pytest.mark.parametrize("state", ["waiting", "delayed"])
async def test_a_job_that_has_not_ended_cannot_be_retried(queue: AnyQueue, state: str) -> None:
    job = await job_in(queue, state)
    with pytest.raises(JobStateError, match=state):
        await job.retry()


async def test_retrying_wakes_an_idle_worker(queue: AnyQueue) -> None:
    outcomes = iter([ValueError("first"), None])

    async def fail_once(job: AnyJob) -> str:
        if error := next(outcomes):
            raise error
        return "done"

    async with worker_of(queue, fail_once):
        job = await ended(await queue.add("n"))
        await job.retry()
        assert await job.result(5) == "done"


@pytest.mark.everywhere
async def test_failed_jobs_are_retried_in_bulk(queue: AnyQueue) -> None:
    async with worker_of(queue, fail):
        jobs = [await ended(await queue.add("n", number)) for number in range(5)]
    assert await queue.retry_jobs(count=2) == 2
    assert {job.id for job in await queue.get_jobs("waiting")} == {jobs[4].id, jobs[3].id}
    assert await queue.retry_jobs() == 3
    assert await queue.retry_jobs() == 0
    async with worker_of(queue, echo):
        for job in jobs:
            await ended(job)
    assert await queue.retry_jobs("completed", count=10) == 5
    assert await queue.retry_jobs(count=0) == 0


@pytest.mark.everywhere
@pytest.mark.parametrize("state", ["waiting", "delayed"])
async def test_revoking_a_waiting_job_fails_it(queue: AnyQueue, state: str) -> None:
    job = await job_in(queue, state)
    waiting = asyncio.create_task(job.result(10))
    await waits_for_results(queue)
    assert await job.revoke() is True
    with pytest.raises(JobFailed, match="revoked"):
        await waiting
    await job.refresh()
    assert (job.state, job.failed_reason, job.attempts_made) == ("failed", "revoked", 0)
    with pytest.raises(JobStateError, match="failed"):
        await job.revoke()
    async with worker_of(queue, echo):
        await queue.add_and_wait("n", 1, wait_timeout=10)
    assert await job.get_state() == "failed"


@pytest.mark.everywhere
async def test_revoking_reaches_an_active_job(queue: AnyQueue) -> None:
    loop = asyncio.get_running_loop()
    gate = Gate()
    async with worker_of(queue, gate) as worker:
        failed = Heard(worker, "failed")
        job = await queue.add("n", attempts=5)
        held = await gate.running()
        revoked = loop.time()
        assert await queue.revoke(job.id) is False
        await gate.stopped()
        # It was notified. A renewal, which comes every third of its lease, would be too late.
        assert loop.time() - revoked < 5
        assert held.abort.reason == "revoked"
        await failed.next()
        await job.refresh()
        assert (job.state, job.failed_reason) == ("failed", "revoked")
    kinds = [kind for kind, _ in await job_events(queue, job.id)]
    assert kinds == ["added", "active", "revoking", "failed"]


async def test_revoking_is_fast(queue: AnyQueue) -> None:
    loop = asyncio.get_running_loop()
    gate = Gate()
    took: list[float] = []
    async with worker_of(queue, gate):
        for number in range(10):
            job = await queue.add("n", number)
            await gate.running()
            began = loop.time()
            await job.revoke()
            await gate.stopped()
            took.append(loop.time() - began)
            await ended(job)
    # Most of them, because a host may pause now and then. Renewals are ten seconds apart.
    assert sorted(took)[5] < 1


async def test_a_run_that_returns_a_result_despite_its_revocation_completes(queue: AnyQueue) -> None:
    started, asked = asyncio.Event(), asyncio.Event()

    async def stubborn(job: AnyJob) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            asked.set()
        return "done all the same"

    async with worker_of(queue, stubborn):
        job = await queue.add("n")
        await started.wait()
        await job.revoke()
        assert await job.result(10) == "done all the same"
        assert asked.is_set()


async def test_a_revoked_run_that_fails_is_not_retried(queue: AnyQueue) -> None:
    started = asyncio.Event()

    async def break_down(job: AnyJob) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("while stopping")

    async with worker_of(queue, break_down):
        job = await queue.add("n", attempts=5)
        await started.wait()
        await job.revoke()
        await ended(job)
    assert (job.state, job.failed_reason) == ("failed", "revoked")


async def test_revoking_an_unknown_job_has_no_effect(queue: AnyQueue) -> None:
    with pytest.raises(JobNotFound, match="nobody"):
        await queue.revoke("nobody")


async def test_a_job_can_be_revoked_between_two_attempts(queue: AnyQueue) -> None:
    async with worker_of(queue, fail) as worker:
        retrying = Heard(worker, "retrying")
        job = await queue.add("n", attempts=5, backoff=60)
        await retrying.next()
        assert await job.revoke() is True
    await job.refresh()
    assert (job.state, job.failed_reason, job.attempts_made) == ("failed", "revoked", 1)


@pytest.mark.only_on("memory")
@pytest.mark.parametrize("count", [-1, 1.5, True])
async def test_a_bad_count_of_retries_is_refused(queue: AnyQueue, count: int) -> None:
    with pytest.raises((ValueError, TypeError), match="count"):
        await queue.retry_jobs(count=count)


@pytest.mark.only_on("memory")
async def test_only_ended_jobs_are_retried_in_bulk(queue: AnyQueue) -> None:
    for count in (None, 5):
        with pytest.raises(ValueError, match="waiting"):
            await queue.retry_jobs("waiting", count)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("running", [False, True])
async def test_a_revocation_may_have_a_reason(queue: AnyQueue, running: bool) -> None:
    gate = Gate()
    job = await queue.add("n", attempts=5)
    waiting = asyncio.create_task(job.result(10))
    if running:
        async with worker_of(queue, gate):
            await gate.running()
            assert await queue.revoke(job.id, "the order was cancelled; twice") is False
            await ended(job)
    else:
        assert await job.revoke("the order was cancelled; twice") is True
    with pytest.raises(JobFailed) as caught:
        await waiting
    assert (caught.value.error_type, caught.value.message) == ("revoked", "the order was cancelled; twice")
    await job.refresh()
    assert (job.state, job.failure_cause) == ("failed", "revoked")
    assert job.failed_reason == "revoked: the order was cancelled; twice"
    assert ("failed", job.failed_reason) in await job_events(queue, job.id)
    await job.retry()
    assert await job.revoke() is True
    await job.refresh()
    assert job.failed_reason == "revoked"


async def test_the_reason_of_a_revocation_outlives_its_worker(timed: Timed) -> None:
    job = await timed.queue.add("n")
    [run] = await timed.fake_worker.claim()
    assert await job.revoke("too late") is False
    await timed.fake_worker.vanish(run)
    await timed.fake_worker.sweep()
    await job.refresh()
    assert (job.failed_reason, job.failure_cause) == ("revoked: too late", "revoked")


@pytest.mark.parametrize(
    ("reason", "error"), [("", ValueError), ("a\nb", ValueError), ("x" * 501, ValueError), (7, TypeError)]
)
async def test_a_reason_that_is_not_one_line_is_refused(queue: AnyQueue, reason: str, error: type[Exception]) -> None:
    job = await queue.add("n")
    with pytest.raises(error, match="reason must be"):
        await job.revoke(reason)
    assert await job.get_state() == "waiting"
