"""The history of a job names each of its runs and each action of an operator, in bounded space."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import HistoryEntry, JobFailed, UnrecoverableError
from glidemq_async.functions.callers import Functions
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, echo, ended, worker_of


async def flaky(job: AnyJob) -> Any:
    await job.log(f"run {job.fence}")
    if job.data == "final":
        raise UnrecoverableError("never")
    if job.fence < 3:
        raise ValueError("not yet")
    return job.fence


async def one_fails(job: AnyJob) -> Any:
    return job.data if job.data == 1 else await flaky(job)


async def outcomes(queue: AnyQueue, job_id: str) -> list[tuple[str, int | None, str]]:
    found = await queue.get_job_history(job_id)
    assert [entry.at for entry in found] == sorted(entry.at for entry in found)
    assert await queue.check() == []
    return [(entry.kind, entry.number, entry.outcome) for entry in found]


@pytest.mark.everywhere
async def test_each_run_has_an_entry(queue: AnyQueue) -> None:
    job = await queue.add("n", attempts=5)
    async with worker_of(queue, flaky, version="2026.11.3") as worker:
        assert await job.result(10) == 3
        name = worker.name
    first, second, third = await queue.get_job_history(job.id)
    for number, entry in enumerate((first, second, third), 1):
        assert (entry.kind, entry.number, entry.worker, entry.version) == ("attempt", number, name, "2026.11.3")
        assert [line for _, line in entry.log] == [f"run {number}"]
        assert entry.started_at is not None
        assert entry.ended_at == entry.at >= entry.started_at
    assert (first.outcome, first.error, third.outcome, third.error) == (
        "retrying",
        "ValueError: not yet",
        "completed",
        None,
    )
    found = await queue.get_job(job.id)
    assert found is not None
    assert first.group == second.group == found.failure_group
    assert await queue.get_job_logs(job.id) == ["run 1", "run 2", "run 3"]


async def test_a_plain_job_has_the_run_that_its_record_shows(queue: AnyQueue) -> None:
    job = await queue.add("n", 1)
    assert await queue.get_job_history(job.id) == []
    async with worker_of(queue, echo):
        assert await job.result(10) == 1
    [entry] = await queue.get_job_history(job.id)
    assert (entry.kind, entry.number, entry.worker, entry.outcome) == ("attempt", 1, None, "completed")
    assert await queue.get_job_history("none") == []


async def test_a_running_job_names_its_worker(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    job = await queue.add("n", 1)
    [lease] = await fake_worker.claim()
    [entry] = await queue.get_job_history(job.id)
    assert (entry.number, entry.worker, entry.outcome, entry.ended_at) == (1, fake_worker.name, "active", None)
    await fake_worker.settle(lease)


@pytest.mark.everywhere
async def test_lost_leases_delays_and_ends_by_the_server(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    job = await queue.add("n", 1)
    [lease] = await fake_worker.claim(lock_ms=1_000)
    await fake_worker.vanish(lease, for_ms=1_100)
    await fake_worker.sweep()
    [lease] = await fake_worker.claim()
    await fake_worker.settle(lease, "d", "0")
    await queue.revoke(job.id)
    assert await outcomes(queue, job.id) == [
        ("attempt", 1, "stalled"),
        ("attempt", 2, "delayed"),
        ("event", None, "revoked"),
    ]
    stalled = (await queue.get_job_history(job.id))[0]
    assert stalled.worker == fake_worker.name


async def test_the_actions_of_operators(queue: AnyQueue) -> None:
    done = await queue.add("n", 1)
    failed = await queue.add("n", "final")
    async with worker_of(queue, one_fails):
        assert await done.result(10) == 1
        with pytest.raises(JobFailed):
            await failed.result(10)
    functions = Functions(queue.storage, f"glide:{{{queue.name}}}").job_history
    noted = await functions.note_action([done.id, "none", failed.id], "ada", "retry", "the mail\nserver is back")
    assert noted == 2
    for job in (done, failed):
        await (await ended(job)).retry()
    assert await outcomes(queue, done.id) == [("attempt", 1, "completed"), ("action", None, "retry")]
    attempt, action = await queue.get_job_history(failed.id)
    assert (attempt.outcome, attempt.error) == ("failed", "UnrecoverableError: never")
    assert (action.actor, action.outcome, action.note) == ("ada", "retry", "the mail server is back")


async def test_a_history_is_bounded_and_can_be_off(queue: AnyQueue) -> None:
    job = await queue.add("n", delay=60)
    functions = Functions(queue.storage, f"glide:{{{queue.name}}}").job_history
    for number in range(400):
        await functions.note_action([job.id], "ada", f"action {number}", "x" * 300)
    kept = await queue.get_job_history(job.id)
    assert 30 < len(kept) < 42
    assert [entry.outcome for entry in kept] == [f"action {number}" for number in range(400 - len(kept), 400)]
    await queue.set_history(0)
    await functions.note_action([job.id], "ada", "not kept")
    assert len(await queue.get_job_history(job.id)) == len(kept)
    with pytest.raises(ValueError, match="max_bytes must be at most 65536, got 65537"):
        await queue.set_history(65_537)
    off = await queue.add("n", "final")
    async with worker_of(queue, flaky):
        with pytest.raises(JobFailed):
            await off.result(10)
    assert await queue.get_job_history(off.id) == []
    assert HistoryEntry(kept[0].at, "event").log == ()


async def test_many_actions_in_one_call(queue: AnyQueue) -> None:
    jobs = await queue.add_bulk([("n", number) for number in range(450)])
    functions = Functions(queue.storage, f"glide:{{{queue.name}}}").job_history
    assert await functions.note_action([job.id for job in jobs], "ada", "promote") == 450
    for job in (jobs[0], jobs[-1]):
        [entry] = await queue.get_job_history(job.id)
        assert entry.actor == "ada"
