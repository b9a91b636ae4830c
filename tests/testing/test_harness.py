"""The harness for users' tests: a server for each test, whose clock the test moves."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from glidemq_async import Backoff, JobFailed, Queue, Worker
from glidemq_async.storage import MemoryStorage
from glidemq_async.testing import Harness, MovableClock
from tests.support.helpers import AnyJob

HOUR = 3600


async def echo(job: AnyJob) -> object:
    return job.data


async def fail(_job: AnyJob) -> None:
    raise ValueError("no luck")


async def test_jobs_of_the_code_under_test_can_be_asserted(glidemq: Harness) -> None:
    async with Queue("emails", glidemq.storage) as queue:
        await queue.add("welcome", {"to": "ada", "n": 1})
        await queue.add("welcome", {"to": "bob"}, delay=60)
        await queue.add("bill", job_id="b")
    found = await glidemq.assert_added("emails", "welcome", data={"to": "ada"})
    assert [job.data for job in found] == [{"to": "ada", "n": 1}]
    assert [job.name for job in await glidemq.added("emails")] == ["welcome", "welcome", "bill"]
    await glidemq.assert_nothing_added("others")


async def test_a_failed_assertion_shows_the_added_jobs(glidemq: Harness) -> None:
    await glidemq.queue("emails").add("welcome", {"to": "ada"})
    with pytest.raises(AssertionError, match=r"expected 2 .*welcome.*found 1.*\n  welcome \{'to': 'ada'\}"):
        await glidemq.assert_added("emails", "welcome", times=2)
    with pytest.raises(AssertionError, match="found 1"):
        await glidemq.assert_nothing_added("emails")


async def test_drain_runs_only_due_jobs(glidemq: Harness) -> None:
    queue = glidemq.queue("q")
    now = [await queue.add("now", number) for number in range(5)]
    later = await queue.add("later", 6, delay=HOUR)
    ended = await glidemq.drain("q", echo)
    assert sorted(job.id for job in ended) == sorted(job.id for job in now)
    assert {job.return_value for job in ended} == set(range(5))
    assert await later.get_state() == "delayed"
    await glidemq.clock.advance(HOUR)
    assert [job.id for job in await glidemq.drain(queue, echo)] == [later.id]
    assert await glidemq.drain(queue, echo) == []


async def test_jobs_without_retention_are_drained_too(glidemq: Harness) -> None:
    queue = glidemq.queue("q")
    await queue.add("n", 1, keep_completed=False)
    await queue.add("n", 2, result_ttl=0.001)

    async def process(job: AnyJob) -> int:
        return int(job.data) + 1

    found = await glidemq.drain(queue, process)
    assert [(job.state, job.return_value) for job in found] == [("completed", 2), ("completed", 3)]


async def test_jobs_that_jobs_add_are_drained_too(glidemq: Harness) -> None:
    queue = glidemq.queue("q")

    async def spawn(job: AnyJob) -> None:
        if job.data:
            await queue.add("child", job.data - 1)

    await queue.add("root", 3)
    assert [job.data for job in await glidemq.drain("q", spawn, concurrency=1)] == [3, 2, 1, 0]


async def test_retries_take_no_time(glidemq: Harness) -> None:
    job = await glidemq.queue("q").add("n", attempts=3, backoff=Backoff.fixed(HOUR))
    for attempt in (1, 2):
        assert await glidemq.drain("q", fail) == []
        assert (await job.get_state(), attempt) == ("delayed", attempt)
        await glidemq.clock.advance(HOUR)
    (ended,) = await glidemq.drain("q", fail)
    assert (ended.id, ended.attempts_made) == (job.id, 3)
    with pytest.raises(JobFailed, match="no luck"):
        await job.result(timeout=5)


async def test_an_idle_worker_starts_a_job_when_the_clock_reaches_it(glidemq: Harness) -> None:
    # Its polls are too rare to matter, so a wake-up must come.
    async with Worker("q", echo, glidemq.storage, poll_interval=60):
        job = await glidemq.queue("q").add("n", "x", delay=HOUR)
        # The call that stores this result also registers the worker as idle.
        await glidemq.queue("q").add_and_wait("n", wait_timeout=5)
        await glidemq.clock.advance(timedelta(hours=1))
        assert await job.result(timeout=5) == "x"


async def test_every_fire_time_on_the_way_fires_at_its_own_time(glidemq: Harness) -> None:
    queue = glidemq.queue("q")
    start = datetime(2030, 1, 1, tzinfo=UTC)
    await glidemq.clock.move_to(start + timedelta(seconds=1))
    await queue.upsert_job_scheduler("hourly", cron="0 * * * *")
    await queue.upsert_job_scheduler("daily", cron="30 4 * * *")
    await glidemq.clock.advance(timedelta(days=1))
    jobs = [job.id.partition("@")[0] for job in await glidemq.added("q")]
    assert (jobs.count("hourly"), jobs.count("daily")) == (24, 1)
    created = [job.created_at for job in await glidemq.added("q") if job.id.startswith("daily")]
    assert created[0] is not None
    assert abs(created[0] - (start + timedelta(hours=4, minutes=30))) < timedelta(minutes=1)


async def test_a_job_expires_when_the_test_moves_the_clock(glidemq: Harness) -> None:
    queue = glidemq.queue("q")
    job = await queue.add("n", ttl=60)
    await glidemq.clock.advance(61)
    assert await glidemq.drain("q", echo) == []
    await job.refresh()
    assert (job.state, job.failed_reason) == ("failed", "expired")


async def test_a_job_added_after_the_clock_moved_has_the_new_time(glidemq: Harness) -> None:
    now = await glidemq.clock.advance(24 * HOUR)
    await glidemq.queue("q").add("n")
    (job,) = await glidemq.drain("q", echo)
    for instant in (job.created_at, job.processed_at, job.finished_at):
        assert instant is not None
        assert abs(instant - now) < timedelta(minutes=1)


async def test_the_clock_refuses_impossible_moves(glidemq_clock: MovableClock) -> None:
    with pytest.raises(ValueError, match="negative"):
        await glidemq_clock.advance(-1)
    with pytest.raises(ValueError, match="cannot move back"):
        await glidemq_clock.move_to(datetime(2000, 1, 1, tzinfo=UTC))
    with pytest.raises(ValueError, match="time zone"):
        await glidemq_clock.move_to(datetime(2100, 1, 1))  # noqa: DTZ001 - this is the mistake under test


async def test_the_fixtures_share_one_server(
    glidemq: Harness, glidemq_storage: MemoryStorage, glidemq_clock: MovableClock
) -> None:
    assert glidemq_storage is glidemq.storage
    assert glidemq_clock is glidemq.clock


async def test_harnesses_have_separate_queues_and_clocks() -> None:
    async with Harness() as one, Harness() as other:
        await one.queue("q").add("n")
        await other.assert_nothing_added("q")
        before = await other.clock.now()
        await one.clock.advance(HOUR)
        assert await other.clock.now() - before < timedelta(minutes=1)
        await asyncio.gather(one.drain("q", echo), other.drain("q", echo))


async def test_drain_leaves_a_suspended_job_until_its_signal_or_its_timeout(glidemq: Harness) -> None:
    async def approval(job: AnyJob) -> object:
        if job.resumed_by is None:
            await job.suspend(timeout=3 * 24 * 3600)
        return [job.resumed_by, [one.name for one in job.signals]]

    queue = glidemq.queue("orders")
    answered, late = await queue.add("n"), await queue.add("n")
    await glidemq.drain(queue, approval)
    assert (await queue.get_job_counts())["suspended"] == 2
    await queue.signal(answered.id, "approved")
    [done] = await glidemq.drain(queue, approval)
    assert (done.id, done.return_value) == (answered.id, ["signal", ["approved"]])
    await glidemq.clock.advance(3 * 24 * 3600)
    [done] = await glidemq.drain(queue, approval)
    assert (done.id, done.return_value) == (late.id, ["timeout", []])
