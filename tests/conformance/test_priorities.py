"""Priorities: 0 goes first, then 1 before 2, in order of arrival inside one priority, for every origin of a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from glidemq_async import JobOptions
from tests.support.clocked_queue import HOUR, MINUTE, SECOND, Timed
from tests.support.helpers import AnyJob, AnyQueue, Gate, counts, echo, ended, job_events, worker_of


async def order_of_runs(queue: AnyQueue) -> list[Any]:
    """Run all jobs that can start, one after the other; return their data in order."""
    seen: list[Any] = []

    async def note(job: AnyJob) -> None:
        seen.append(job.data)

    await worker_of(queue, note).run(until_empty=True)
    return seen


@pytest.mark.everywhere
async def test_lower_numbers_go_first_and_equal_ones_in_order_of_arrival(queue: AnyQueue) -> None:
    """The ids sort differently as text than as numbers, and there are enough of them."""
    for number in range(12):
        await queue.add("n", (2, number), priority=2)
    await queue.add_bulk([("n", (1, number), JobOptions(priority=1)) for number in range(12)])
    await queue.add("n", (0, 0))
    await queue.add("n", (2**21, 0), priority=2**21)
    await queue.add("n", (2**21 - 1, 0), priority=2**21 - 1)
    found = await order_of_runs(queue)
    assert found == [
        [0, 0],
        *([1, number] for number in range(12)),
        *([2, number] for number in range(12)),
        [2**21 - 1, 0],
        [2**21, 0],
    ]


async def test_ids_do_not_affect_the_order(queue: AnyQueue) -> None:
    ids = ["z", "10", "a", "9", "000", "b b"]
    for job_id in ids:
        await queue.add("n", job_id, priority=3, job_id=job_id)
    assert await order_of_runs(queue) == ids


async def test_thousands_of_jobs_of_one_priority_keep_their_order(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number, JobOptions(priority=1)) for number in range(2_500)])
    seen: list[int] = []

    async def note(job: AnyJob) -> None:
        seen.append(job.data)

    await worker_of(queue, note, concurrency=700).run(until_empty=True)
    assert seen == list(range(2_500))


async def test_priority_zero_goes_first_every_time(queue: AnyQueue) -> None:
    """A prioritized job does not start as long as a plain job can."""
    gate = Gate()
    await queue.add("n", "urgent", priority=1)
    async with worker_of(queue, gate):
        assert (await gate.running()).data == "urgent"
        for number in range(3):
            await queue.add("n", f"p{number}", priority=1)
        for number in range(3):
            await queue.add("n", f"z{number}")
        gate.release()
        assert [(await gate.running()).data for _ in range(6)] == ["z0", "z1", "z2", "p0", "p1", "p2"]


async def test_a_prioritized_job_shows_its_option_and_state(queue: AnyQueue) -> None:
    low = await queue.add("n", 9, priority=9)
    high = await queue.add("n", 1, priority=1)
    plain = await queue.add("n", 0)
    assert (low.state, low.priority, plain.state, plain.priority) == ("prioritized", 9, "waiting", 0)
    assert await counts(queue) == {"waiting": 1, "prioritized": 2}
    assert await queue.count() == 3
    assert [job.id for job in await queue.get_jobs("prioritized")] == [high.id, low.id]
    assert [job.data async for job in queue.iter_jobs("prioritized")] == [1, 9]
    stored = await queue.get_job(low.id)
    assert stored is not None
    assert (stored.state, stored.priority) == ("prioritized", 9)
    assert stored.created_at is not None
    assert abs(datetime.now(UTC) - stored.created_at) < timedelta(minutes=1)
    seen: list[int] = []

    async def note(job: AnyJob) -> None:
        seen.append(job.priority)

    await worker_of(queue, note).run(until_empty=True)
    assert seen == [0, 1, 9]
    assert [kind for kind, _ in await job_events(queue, low.id)] == ["added", "active", "completed"]


async def test_a_retry_waits_by_its_priority_again(queue: AnyQueue) -> None:
    seen: list[Any] = []

    async def fail_once(job: AnyJob) -> None:
        seen.append(job.data)
        if job.data == "a" and job.attempts_made == 0:
            raise ValueError("no")

    await queue.add("n", "a", priority=1, attempts=2)
    await queue.add("n", "b", priority=1)
    await queue.add("n", "c", priority=2)
    await worker_of(queue, fail_once).run(until_empty=True)
    assert seen == ["a", "b", "a", "c"]


async def test_a_released_job_goes_first(timed: Timed) -> None:
    await timed.queue.add("low", priority=5)
    [lease] = await timed.fake_worker.claim()
    await timed.queue.add("plain")
    await timed.queue.add("high", priority=1)
    await timed.fake_worker.settle(lease, "b")
    assert await timed.names() == ["low", "plain", "high"]
    await timed.fake_worker.leave()
    # Among released jobs, those of `fifo` come first, in the order in which they were added.
    assert await timed.names() == ["plain", "low", "high"]
    await timed.fake_worker.leave()


async def test_stalled_jobs_are_reclaimed_in_their_order(timed: Timed) -> None:
    for name in ("a", "b", "c"):
        await timed.queue.add(name, priority=3)
    leases = await timed.fake_worker.claim(3)
    await timed.fake_worker.vanish(*leases)
    assert len(await timed.fake_worker.sweep()) == 3
    assert await timed.run() == ["a", "b", "c"]


async def test_a_delayed_job_waits_by_its_priority_once_it_is_due(timed: Timed) -> None:
    await timed.queue.add("first due", delay=10, priority=9)
    await timed.queue.add("last due", delay=30, priority=1)
    await timed.queue.add("plain", delay=20)
    assert await timed.names() == []
    await timed.clock.advance(31 * SECOND)
    assert await timed.run() == ["plain", "last due", "first due"]


async def test_regression_priority_inversion_across_promotion_batches(timed: Timed) -> None:
    """A job that was promoted earlier must not go first for that reason."""
    for number in range(5):
        await timed.queue.add(f"low{number}", delay=10, priority=9)
    await timed.queue.add("high", delay=60, priority=1)
    await timed.clock.advance(11 * SECOND)
    assert await timed.run(1) == ["low0"]
    await timed.clock.advance(MINUTE)
    assert await timed.run() == ["high", "low1", "low2", "low3", "low4"]


async def test_regression_priority_inversion_inside_a_large_promotion(timed: Timed) -> None:
    """More jobs become due than one call promotes, the most urgent of them last."""
    jobs = [("low", number, JobOptions(delay=10 + number / 1000, priority=9)) for number in range(900)]
    await timed.queue.add_bulk([*jobs, ("high", 0, JobOptions(delay=12, priority=1))])
    await timed.clock.advance(HOUR)
    started: list[str] = []
    while not started:
        started = await timed.run(1)
    assert started == ["high"]


async def test_regression_equal_due_times_sort_by_arrival(timed: Timed) -> None:
    """Ids as text would sort 1, 10, 11, 12, 2."""
    at = datetime.now(UTC) + timedelta(minutes=10)
    for number in range(12):
        await timed.queue.add(f"p{number}", at=at, priority=4)
    await timed.queue.add_bulk([(f"n{number}", None, JobOptions(at=at)) for number in range(12)])
    assert [job.name for job in await timed.queue.get_jobs("delayed")][:3] == ["p0", "p1", "p2"]
    await timed.clock.advance(11 * MINUTE)
    assert await timed.run() == [f"n{number}" for number in range(12)] + [f"p{number}" for number in range(12)]


async def test_regression_a_later_due_time_does_not_mask_an_earlier_one(queue: AnyQueue) -> None:
    """The next wake time is the earliest of all kinds of jobs."""
    async with worker_of(queue, echo) as worker:
        await queue.add("n", 0, delay=3_600)
        assert await (await queue.add("n", 1, delay=0.1, priority=5)).result(5) == 1
        assert await (await queue.add("n", 2, delay=0.1, lifo=True)).result(5) == 2
        assert await (await queue.add("n", 3, delay=0.1, key="k")).result(5) == 3
        assert worker.running == 0


@pytest.mark.parametrize("options", [{}, {"priority": 3}, {"lifo": True}, {"key": "k"}], ids=str)
async def test_never_early_by_the_servers_clock(queue: AnyQueue, options: dict[str, Any]) -> None:
    async with worker_of(queue, echo, concurrency=10):
        jobs = [await queue.add("n", number, delay=0.02 + number / 500, **options) for number in range(25)]
        for number, job in enumerate(jobs):
            await ended(job)
            assert job.processed_at is not None
            assert job.created_at is not None
            early = timedelta(milliseconds=round(20 + number * 2)) - (job.processed_at - job.created_at)
            assert early <= timedelta(0), f"job {number} started {early} before its due time"


@pytest.mark.parametrize("options", [{}, {"priority": 3}, {"lifo": True}, {"key": "k"}], ids=str)
async def test_nothing_starts_an_hour_before_it_is_due(timed: Timed, options: dict[str, Any]) -> None:
    await timed.queue.add("n", delay=2 * 3_600, **options)
    await timed.clock.advance(HOUR)
    assert await timed.names() == []
    assert await counts(timed.queue) == {"delayed": 1}
    await timed.clock.advance(HOUR)
    assert await timed.run() == ["n"]


async def test_a_time_to_live_ends_the_wait(timed: Timed) -> None:
    job = await timed.queue.add("short", priority=1, ttl=60)
    await timed.queue.add("long", priority=2)
    await timed.clock.advance(2 * MINUTE)
    assert await timed.run() == ["long"]
    await job.refresh()
    assert (job.state, job.failed_reason) == ("failed", "expired")
    swept = await timed.queue.add("swept", priority=1, ttl=60)
    await timed.clock.advance(2 * MINUTE)
    await timed.fake_worker.sweep()
    assert await swept.get_state() == "failed"
    assert await counts(timed.queue) == {"completed": 1, "failed": 2}


async def test_a_prioritized_job_can_be_removed_and_revoked(queue: AnyQueue) -> None:
    jobs = [await queue.add("n", number, priority=1) for number in range(4)]
    await jobs[0].remove()
    assert await queue.revoke(jobs[2].id) is True
    assert await order_of_runs(queue) == [1, 3]
    assert await jobs[2].get_state() == "failed"
