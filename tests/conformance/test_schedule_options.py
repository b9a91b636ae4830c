"""Options of job schedulers: an immediate first fire time, fire times after the end of a job, jitter, and pauses."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from glidemq_async import Deduplication, JobScheduler, Queue, Schedule
from glidemq_async.schedules.stored_schedule import read_schedule, schedule_form
from glidemq_async.storage import Storage
from tests.support.helpers import PATIENCE, AnyJob, AnyQueue, Gate, echo, ended, worker_of
from tests.support.schedulers import FAR, ended_schedule, fire_times, scheduler_of

# -- immediately ------------------------------------------------------------------------------------------------------


async def test_the_first_fire_time_may_be_the_upsert(queue: AnyQueue) -> None:
    async with worker_of(queue, echo):
        made = await queue.upsert_job_scheduler("s", every=60, immediately=True)
        async with asyncio.timeout(PATIENCE):
            while not (found := await fire_times(queue)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        again = await queue.upsert_job_scheduler("s", every=60, immediately=True)
    assert made.next_at is not None
    assert again.next_at == made.next_at + timedelta(seconds=60)
    assert found == [round(made.next_at.timestamp() * 1000)]


# -- after_completion -------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_the_next_fire_time_follows_the_end_of_the_job(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, concurrency=5):
        await queue.upsert_job_scheduler("s", every=0.2, immediately=True, after_completion=True, limit=3)
        first = await gate.running()
        await asyncio.sleep(0.5)
        waiting = await scheduler_of(queue)
        assert (waiting.next_at, waiting.fired, waiting.skipped) == (None, 1, 0)
        # Every start of a program makes the same upsert.
        again = await queue.upsert_job_scheduler("s", every=0.2, immediately=True, after_completion=True, limit=3)
        assert again.next_at is None
        gate.release()
        over = await _fired(queue, 3)
        jobs = [await ended(await _job(queue, f"s@{fire_time}")) for fire_time in await fire_times(queue)]
    assert over.skipped == 0
    assert jobs[0].id == first.id
    ends = [job.finished_at for job in jobs]
    for before, after in zip(ends, jobs[1:], strict=False):
        assert before is not None
        assert after.created_at is not None
        fire_time = datetime.fromtimestamp(int(after.id.partition("@")[2]) / 1000, UTC)
        assert fire_time - before == timedelta(seconds=0.2)
        assert after.created_at >= fire_time
    assert await queue.check() == []


@pytest.mark.parametrize("way", ["failed", "removed", "revoked"])
async def test_every_end_of_the_job_sets_the_next_fire_time(queue: AnyQueue, way: str) -> None:
    gate = Gate()
    tries = 0

    async def work(job: AnyJob) -> None:
        nonlocal tries
        tries += 1
        if way == "failed" and tries < 3:
            raise ValueError("no")
        if tries == 1:
            await gate(job)

    async with worker_of(queue, work) as worker:
        await queue.upsert_job_scheduler(
            "s", every=0.1, immediately=True, after_completion=True, limit=2, attempts=2, backoff=0.05
        )
        if way != "failed":
            job = await gate.running()
            await (queue.remove(job.id) if way == "removed" else queue.revoke(job.id))
        over = await _fired(queue, 2)
        assert worker.running <= 1
    assert (over.fired, over.skipped) == (2, 0)


async def test_no_fire_time_comes_after_the_end_of_the_schedule(queue: AnyQueue) -> None:
    async with worker_of(queue, echo):
        # The first job may end 1.5 s late, and the second fire time still comes before the end.
        end = datetime.now(UTC) + timedelta(seconds=3.5)
        await queue.upsert_job_scheduler("s", every=2, immediately=True, after_completion=True, end=end)
        await _fired(queue, 2)
        last = await ended(await _job(queue, f"s@{(await fire_times(queue))[-1]}"))
    assert last.state == "completed"
    assert (await scheduler_of(queue)).next_at is None


async def test_a_shorter_interval_waits_for_the_job_too(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, concurrency=5):
        await queue.upsert_job_scheduler("s", every=60, immediately=True, after_completion=True)
        await gate.running()
        await queue.upsert_job_scheduler("s", every=0.1, after_completion=True, limit=2)
        await asyncio.sleep(0.5)
        assert (await scheduler_of(queue)).fired == 1
        gate.release()
        assert (await _fired(queue, 2)).fired == 2


# -- pause ------------------------------------------------------------------------------------------------------------


async def test_a_paused_scheduler_adds_nothing(queue: AnyQueue) -> None:
    assert not await queue.pause_job_scheduler("s")
    assert not await queue.resume_job_scheduler("s")
    async with worker_of(queue, echo):
        await queue.upsert_job_scheduler("s", every=0.1)
        await queue.upsert_job_scheduler("other", every=0.1)
        assert await queue.pause_job_scheduler("s")
        fired = (await scheduler_of(queue)).fired
        others = (await scheduler_of(queue, "other")).fired
        again = await queue.upsert_job_scheduler("s", every=0.1)
        assert (again.is_paused, again.next_at) == (True, None)
        assert (await ended(await queue.trigger_job_scheduler("s"))).state == "completed"
        async with asyncio.timeout(PATIENCE):
            while (await scheduler_of(queue, "other")).fired < others + 5:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        paused = await scheduler_of(queue)
        assert (paused.is_paused, paused.next_at, paused.fired) == (True, None, fired)
        assert await queue.resume_job_scheduler("s")
        assert await queue.resume_job_scheduler("s")
        await _fired(queue, fired + 2)
    resumed = await scheduler_of(queue)
    assert (resumed.is_paused, resumed.skipped) == (False, 0)
    assert resumed.next_at is not None


async def test_the_end_of_a_job_does_not_resume_its_scheduler(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate):
        await queue.upsert_job_scheduler("s", every=0.1, immediately=True, after_completion=True, limit=3)
        job = await gate.running()
        assert await queue.pause_job_scheduler("s")
        assert await queue.resume_job_scheduler("s")
        assert (await scheduler_of(queue)).next_at is None
        assert await queue.pause_job_scheduler("s")
        gate.release()
        await ended(job)
        paused = await scheduler_of(queue)
        assert (paused.is_paused, paused.next_at, paused.fired) == (True, None, 1)
        assert await queue.resume_job_scheduler("s")
        assert (await _fired(queue, 3)).fired == 3


def test_a_scheduler_can_be_paused_without_a_loop(storage: Storage, name: str) -> None:
    with Queue[Any, Any](name, storage.url).sync as queue:
        queue.upsert_job_scheduler("s", **FAR)
        assert queue.pause_job_scheduler("s")
        found = queue.get_job_scheduler("s")
        assert found is not None
        assert found.is_paused
        assert queue.resume_job_scheduler("s")


# -- jitter -----------------------------------------------------------------------------------------------------------


async def test_jitter_spreads_the_jobs_of_one_fire_time(queue: AnyQueue) -> None:
    made = [await queue.upsert_job_scheduler(f"s{n}", cron="* * * * * *", jitter=60, limit=1) for n in range(20)]
    assert made[0].schedule.jitter == 60
    for n in range(20):
        await ended_schedule(queue, f"s{n}")
    assert await queue.get_job_counts() == {**await queue.get_job_counts(), "delayed": 20}
    order = [job.id.partition("@")[0] for job in await queue.get_jobs("delayed")]
    assert order != sorted(order)
    # Jitter applies to fire times. A triggered job is added immediately.
    assert (await queue.trigger_job_scheduler("s0")).state == "waiting"
    found = await scheduler_of(queue, "s0")
    assert (found.schedule.jitter, found.options.delay) == (60, None)


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"cron": "@daily", "immediately": True}, ValueError, "immediately=True needs every= without start="),
        ({"every": 5, "immediately": True, "start": datetime(2026, 1, 1, tzinfo=UTC)}, ValueError, "without start="),
        ({"cron": "@daily", "after_completion": True}, ValueError, "after_completion=True needs every="),
        ({"every": 5, "after_completion": True, "overlap": "skip"}, ValueError, "overlap='skip' and after_completion"),
        ({"every": 5, "after_completion": True, "missed": "fire-all"}, ValueError, "missed='fire-all' and after_compl"),
        ({"every": 5, "after_completion": 1}, TypeError, "after_completion"),
        ({"every": 5, "immediately": "yes"}, TypeError, "immediately"),
        ({"every": 5, "jitter": -1}, ValueError, "jitter"),
    ],
)
def test_bad_schedules_are_refused(given: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Schedule(**given)


async def test_jobs_that_follow_each_other_need_no_deduplication(queue: AnyQueue) -> None:
    with pytest.raises(ValueError, match="deduplication= and after_completion=True cannot be combined"):
        await queue.upsert_job_scheduler("s", every=5, after_completion=True, deduplication=Deduplication("d"))


def test_a_stored_schedule_is_read_back() -> None:
    for schedule in (
        Schedule(every=5, immediately=True, after_completion=True, jitter=2),
        Schedule(cron="@daily", jitter=timedelta(minutes=5)),
    ):
        assert read_schedule(schedule_form(schedule, 7)) == (schedule, 7)


async def _fired(queue: AnyQueue, count: int) -> JobScheduler[Any]:
    async with asyncio.timeout(PATIENCE):
        while (found := await scheduler_of(queue)).fired < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found


async def _job(queue: AnyQueue, job_id: str) -> AnyJob:
    found = await queue.get_job(job_id)
    assert found is not None
    return found
