"""LIFO jobs: the job added last starts first. They have priority 0, like plain jobs."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import JobOptions
from tests.support.clocked_queue import MINUTE, SECOND, Timed
from tests.support.helpers import AnyJob, AnyQueue, Gate, counts, worker_of


async def order_of_runs(queue: AnyQueue, **options: Any) -> list[Any]:
    """Run all jobs that can start, one after the other; return their data in order."""
    seen: list[Any] = []

    async def note(job: AnyJob) -> None:
        seen.append(job.data)

    await worker_of(queue, note, **options).run(until_empty=True)
    return seen


@pytest.mark.everywhere
async def test_the_last_job_starts_first(queue: AnyQueue) -> None:
    for number in range(12):
        await queue.add("n", number, lifo=True)
    await queue.add_bulk([("n", number, JobOptions(lifo=True)) for number in range(12, 24)])
    assert await order_of_runs(queue) == list(reversed(range(24)))


async def test_thousands_keep_their_order(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number, JobOptions(lifo=True)) for number in range(2_500)])
    assert await order_of_runs(queue, concurrency=700) == list(reversed(range(2_500)))


async def test_a_new_job_goes_before_the_waiting_ones(queue: AnyQueue) -> None:
    gate = Gate()
    for name in "abc":
        await queue.add("n", name, lifo=True)
    async with worker_of(queue, gate):
        assert (await gate.running()).data == "c"
        await queue.add("n", "d", lifo=True)
        gate.release()
        assert [(await gate.running()).data for _ in range(3)] == ["d", "b", "a"]


async def test_lifo_jobs_go_before_prioritized_ones(queue: AnyQueue) -> None:
    await queue.add("n", "p", priority=1)
    await queue.add("n", "l", lifo=True)
    assert await order_of_runs(queue) == ["l", "p"]


async def test_a_lifo_job_shows_its_option_and_state(queue: AnyQueue) -> None:
    first = await queue.add("n", 1, lifo=True)
    await queue.add("n", 2, lifo=True)
    await queue.add("n", 0)
    assert (first.state, first.lifo, first.priority, first.key) == ("waiting", True, 0, None)
    assert await counts(queue) == {"waiting": 3}
    assert await queue.count() == 3
    assert [job.data for job in await queue.get_jobs("waiting")] == [0, 2, 1]
    assert [job.data async for job in queue.iter_jobs("waiting")] == [0, 2, 1]
    stored = await queue.get_job(first.id)
    assert stored is not None
    assert (stored.state, stored.lifo) == ("waiting", True)


async def test_a_long_list_is_read_in_pages(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number, JobOptions(lifo=True)) for number in range(1_100)])
    await queue.add_bulk([("n", -1 - number) for number in range(3)])
    expected = [-1, -2, -3, *reversed(range(1_100))]
    assert [job.data async for job in queue.iter_jobs("waiting")] == expected
    assert [job.data for job in await queue.get_jobs("waiting", 500, 505)] == expected[500:506]


async def test_a_delayed_job_counts_as_the_last_when_it_is_due(timed: Timed) -> None:
    await timed.queue.add("delayed", lifo=True, delay=10)
    await timed.queue.add("early", lifo=True)
    await timed.clock.advance(11 * SECOND)
    await timed.queue.add("late", lifo=True)
    assert sorted(await timed.run()) == ["delayed", "early", "late"]


async def test_a_retry_goes_first(timed: Timed) -> None:
    for name in ("a", "b", "c"):
        await timed.queue.add(name, lifo=True)
    [lease] = await timed.fake_worker.claim()
    assert lease.name == "c"
    await timed.fake_worker.settle(lease, "r", "0 no")
    assert await timed.run() == ["c", "b", "a"]


async def test_a_released_job_goes_first(timed: Timed) -> None:
    for name in ("a", "b", "c"):
        await timed.queue.add(name, lifo=True)
    leases = await timed.fake_worker.claim(2)
    assert [lease.name for lease in leases] == ["c", "b"]
    await timed.queue.add("d", lifo=True)
    await timed.fake_worker.vanish(*leases)
    assert len(await timed.fake_worker.sweep()) == 2
    assert await timed.run() == ["c", "b", "d", "a"]


async def test_a_lifo_job_can_be_removed_revoked_and_expire(timed: Timed) -> None:
    jobs = [await timed.queue.add(name, lifo=True) for name in "abcde"]
    await jobs[1].remove()
    assert await timed.queue.revoke(jobs[3].id) is True
    short = await timed.queue.add("short", lifo=True, ttl=60)
    await timed.clock.advance(2 * MINUTE)
    assert await timed.run() == ["e", "c", "a"]
    await short.refresh()
    assert (short.state, short.failed_reason) == ("failed", "expired")


@pytest.mark.parametrize("other", [{"priority": 1}, {"key": "k"}, {"priority": 2, "key": "k"}])
async def test_lifo_excludes_priority_and_key(queue: AnyQueue, other: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="lifo"):
        await queue.add("n", lifo=True, **other)
    assert await queue.count() == 0
    assert (await queue.add("n", lifo=True, priority=0, key=None)).lifo
