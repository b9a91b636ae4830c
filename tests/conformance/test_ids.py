"""Ids: generated ones never collide, and an id of one's own makes adding twice harmless."""

from __future__ import annotations

import asyncio

import pytest

from glidemq_async import JobFailed
from tests.workbench import AnyJob, AnyQueue, Gate, echo, ended, worker_of


@pytest.mark.everywhere
async def test_a_second_add_with_an_id_is_a_duplicate(queue: AnyQueue) -> None:
    first = await queue.add("n", "first", job_id="order-7")
    second = await queue.add("other", "second", job_id="order-7", delay=5)
    assert (first.id, first.outcome) == ("order-7", "added")
    assert (second.id, second.outcome, second.name, second.data, second.state) == (
        "order-7", "duplicate", "n", "first", "waiting",
    )  # fmt: skip
    assert await queue.count() == 1


@pytest.mark.everywhere
async def test_a_completed_job_answers_with_its_result(queue: AnyQueue) -> None:
    job = await queue.add("n", "first", job_id="a")
    async with worker_of(queue, echo):
        await job.result(10)
        again = await queue.add("n", "second", job_id="a")
        assert (again.outcome, again.state, again.return_value) == ("completed", "completed", "first")
        assert await again.result(10) == "first"
        assert await queue.add_and_wait("n", "third", job_id="a", wait_timeout=10) == "first"


async def test_an_active_and_a_failed_one_are_duplicates(queue: AnyQueue) -> None:
    gate = Gate()

    async def fail(job: AnyJob) -> None:
        await gate(job)
        raise ValueError("no")

    async with worker_of(queue, fail):
        job = await queue.add("n", job_id="a")
        await gate.running()
        active = await queue.add("n", job_id="a")
        assert (active.outcome, active.state) == ("duplicate", "active")
        gate.release()
        await ended(job)
        failed = await queue.add("n", job_id="a")
        assert (failed.outcome, failed.state, failed.failed_reason) == ("duplicate", "failed", "ValueError: no")
        with pytest.raises(JobFailed, match="no"):
            await failed.result(10)


async def test_a_removed_id_is_free(queue: AnyQueue) -> None:
    await (await queue.add("n", 1, job_id="a")).remove()
    again = await queue.add("n", 2, job_id="a")
    assert (again.outcome, again.data) == ("added", 2)


async def test_a_hundred_at_once_are_one_job(queue: AnyQueue) -> None:
    jobs = await asyncio.gather(*(queue.add("n", number, job_id="a") for number in range(100)))
    assert sorted(job.outcome for job in jobs) == ["added"] + ["duplicate"] * 99
    assert len({job.data for job in jobs if job.outcome == "duplicate"}) == 1
    assert await queue.count() == 1


@pytest.mark.parametrize("job_id", ["007", "9" * 20, "-1", "1.5", "a b", "t[1]*?\\^", "{x}:y", "ü😀", "x" * 512])
async def test_any_text_is_an_id(queue: AnyQueue, job_id: str) -> None:
    added = await queue.add("n", 1, job_id=job_id)
    plain = await queue.add("n", 2)
    assert added.id == job_id != plain.id
    async with worker_of(queue, echo):
        assert [await added.result(10), await plain.result(10)] == [1, 2]
    found = await queue.get_job(job_id)
    assert found is not None
    assert found.state == "completed"
    assert {job.id for job in await queue.get_jobs("completed")} == {plain.id, job_id}


async def test_generated_ids_grow(queue: AnyQueue) -> None:
    ids = [int((await queue.add("n")).id) for _ in range(3)]
    ids += [int(job.id) for job in await queue.add_bulk([("n", 1)] * 3)]
    assert ids == sorted(set(ids))
