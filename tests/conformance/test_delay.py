"""Delayed jobs start at their due time by the server's clock, without polling."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from glidemq_async import JobNotFound, JobStateError
from tests.support.clocked_queue import MINUTE, Timed
from tests.support.helpers import AnyJob, AnyQueue, counts, echo, ended, job_events, worker_of


@pytest.mark.everywhere
async def test_a_delayed_job_starts_at_its_due_time(queue: AnyQueue) -> None:
    loop = asyncio.get_running_loop()
    async with worker_of(queue, echo):
        # The worker does not poll, so only the due time can start the job within the time limit of its result.
        added = loop.time()
        job = await queue.add("n", 1, delay=0.3)
        assert job.state == "delayed"
        assert await job.result(10) == 1
        assert loop.time() - added >= 0.29
    assert [kind for kind, _ in await job_events(queue, job.id)] == [
        "added",
        "delayed",
        "waiting",
        "active",
        "completed",
    ]


async def test_the_wait_of_a_job_is_known_after_its_end(queue: AnyQueue) -> None:
    async with worker_of(queue, echo):
        jobs = [
            await ended(await queue.add("n", delay=0.1)),
            await ended(await queue.add("n")),
            await ended(await queue.add("n", lifo=True)),
            await ended(await queue.add("n", key="k")),
        ]
    for job in jobs:
        assert job.waited is not None
        assert job.processed_at is not None
        assert job.created_at is not None
        # The delay of the first job does not count as waiting. For a job without lifo, priority and key the end of the
        # delay is known.
        since = job.created_at + timedelta(seconds=0.1 if job is jobs[0] else 0)
        assert 0 <= job.waited <= (job.processed_at - since).total_seconds() + 0.002


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=-7))])
async def test_a_job_can_be_delayed_until_a_time(timed: Timed, zone: timezone) -> None:
    due = datetime.now(zone) + timedelta(minutes=10)
    job = await timed.queue.add("n", at=due)
    assert job.state == "delayed"
    assert await counts(timed.queue) == {"delayed": 1}
    await timed.clock.advance(9 * MINUTE)
    assert await timed.run() == []
    # The time is rounded up to a millisecond, and all these calls may take less than one.
    await timed.clock.advance(MINUTE + 1)
    assert await timed.run() == ["n"]
    await job.refresh()
    assert job.processed_at is not None
    assert due - timedelta(milliseconds=2) <= job.processed_at < due + timedelta(minutes=1)


async def test_a_job_with_a_time_in_the_past_starts_immediately(queue: AnyQueue) -> None:
    past = await queue.add("n", at=datetime.now(UTC) - timedelta(hours=1))
    zero = await queue.add("n", delay=0)
    assert (past.state, zero.state) == ("waiting", "waiting")
    assert (await queue.get_job_counts())["waiting"] == 2


async def test_a_timedelta_is_accepted_as_a_delay(queue: AnyQueue) -> None:
    job = await queue.add("n", delay=timedelta(hours=1))
    assert job.state == "delayed"


async def test_delayed_jobs_start_in_the_order_of_their_due_times(timed: Timed) -> None:
    order: list[int] = []

    async def note(job: AnyJob) -> None:
        order.append(job.data)

    jobs = [await timed.queue.add("n", number, delay=delay) for number, delay in enumerate((400, 200, 300, 100))]
    assert [job.data for job in await timed.queue.get_jobs("delayed")] == [3, 1, 2, 0]
    await timed.clock.advance(10 * MINUTE)
    async with worker_of(timed.queue, note):
        for job in jobs:
            await job.result(10)
    assert order == [3, 1, 2, 0]


async def test_an_earlier_job_is_not_hidden_by_a_later_one(queue: AnyQueue) -> None:
    async with worker_of(queue, echo):
        await queue.add("n", "later", delay=3_600)
        soon = await queue.add("n", "soon", delay=0.1)
        assert await soon.result(5) == "soon"


async def test_delays_that_end_while_no_worker_runs_are_kept(queue: AnyQueue) -> None:
    jobs = [await queue.add("n", number, delay=0.05) for number in range(3)]
    late = await queue.add("n", 3, delay=0.4)
    async with worker_of(queue, echo):
        assert [await job.result(10) for job in (*jobs, late)] == [0, 1, 2, 3]


async def test_hundreds_of_jobs_can_be_due_at_one_time(queue: AnyQueue) -> None:
    due = datetime.now(UTC) + timedelta(seconds=0.3)
    jobs = await asyncio.gather(*(queue.add("n", number, at=due) for number in range(700)))
    async with worker_of(queue, echo, concurrency=50):
        assert await asyncio.gather(*(job.result(10) for job in jobs)) == [*range(700)]


@pytest.mark.everywhere
async def test_a_promoted_job_starts_immediately(queue: AnyQueue) -> None:
    async with worker_of(queue, echo):
        job = await queue.add("n", 1, delay=3_600)
        await job.promote()
        assert await job.result(5) == 1
        with pytest.raises(JobStateError, match="completed") as caught:
            await job.promote()
        assert caught.value.found == "completed"
    assert ("waiting", "promoted") in await job_events(queue, job.id)
    await job.remove()
    with pytest.raises(JobNotFound):
        await job.promote()


async def test_a_waiting_job_cannot_be_promoted(queue: AnyQueue) -> None:
    job = await queue.add("n")
    with pytest.raises(JobStateError, match="waiting"):
        await job.promote()


async def test_a_promoted_job_keeps_its_time_of_creation(queue: AnyQueue) -> None:
    job = await queue.add("n", delay=3_600)
    created = job.created_at
    await asyncio.sleep(0.02)
    await job.promote()
    await job.refresh()
    assert job.created_at == created
    async with worker_of(queue, echo):
        await ended(job)
    assert job.created_at == created
