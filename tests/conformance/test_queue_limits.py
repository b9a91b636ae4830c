"""Limits of the whole queue: active jobs, starts in a window, and the gate that RateLimited closes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from glidemq_async import JobOptions, Queue, RateLimit, RateLimited
from glidemq_async.storage import Storage
from tests.support.clocked_queue import HOUR, MINUTE, SECOND, Timed
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, Gate, counts, echo, ended, idle, soon, worker_of
from tests.support.recording_storage import Relay

KINDS: dict[str, dict[str, Any]] = {"plain": {}, "lifo": {"lifo": True}, "prioritized": {"priority": 3}}


async def fill(queue: AnyQueue, count: int, **options: Any) -> list[AnyJob]:
    """Add this many jobs, named by their number."""
    return await queue.add_bulk([(str(number), number, JobOptions(**options)) for number in range(count)])


# -- concurrency ------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_all_workers_together_never_exceed_the_concurrency(queue: AnyQueue) -> None:
    await queue.set_global_concurrency(3)
    assert await queue.get_global_concurrency() == 3
    running = most = 0
    reached = asyncio.Event()

    async def note(job: AnyJob) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            reached.set()
        await soon(reached.wait())
        await queue.get_job_logs("pause")
        running -= 1

    workers = [worker_of(queue, note, concurrency=4) for _ in range(3)]
    for worker in workers:
        await worker.start()
    jobs = await fill(queue, 20)
    jobs += [await queue.add("n", key=str(number % 5)) for number in range(10)]
    jobs += [await queue.add("n", priority=number % 3) for number in range(10)]
    jobs += [await queue.add("n", lifo=True) for _ in range(10)]
    for job in jobs:
        assert (await ended(job)).state == "completed"
    for worker in workers:
        await worker.close()
    assert most == 3


@pytest.mark.parametrize("options", [{}, {"lifo": True}, {"priority": 3}, {"key": "k"}], ids=str)
async def test_regression_the_limit_applies_to_every_kind(timed: Timed, options: dict[str, Any]) -> None:
    await timed.queue.set_key_limits(None, concurrency=100)
    await timed.queue.set_global_concurrency(2)
    await fill(timed.queue, 6, **options)
    leases = await timed.fake_worker.claim(10)
    assert len(leases) == 2
    assert await timed.names() == []
    await timed.fake_worker.settle(leases[0])
    assert len(await timed.names()) == 1
    await timed.fake_worker.leave()


async def test_the_limit_can_be_changed_at_run_time(queue: AnyQueue) -> None:
    gate = Gate()
    await queue.set_global_concurrency(1)
    await fill(queue, 6)
    async with worker_of(queue, gate, concurrency=10):
        await gate.running()
        await queue.set_global_concurrency(3)
        await gate.running()
        await gate.running()
        await queue.set_global_concurrency(2)
        assert await counts(queue) == {"active": 3, "waiting": 3}
        await queue.set_global_concurrency(None)
        for _ in range(3):
            await gate.running()
        gate.release()
    assert await queue.get_global_concurrency() is None


async def test_a_lowered_limit_lets_active_jobs_end(timed: Timed) -> None:
    await fill(timed.queue, 6)
    leases = await timed.fake_worker.claim(4)
    await timed.queue.set_global_concurrency(2)
    for lease in leases[:2]:
        assert await timed.fake_worker.settle(lease) is None
        assert await timed.names() == []
    await timed.fake_worker.settle(leases[2])
    assert await timed.names() == ["4"]
    await timed.fake_worker.leave()


@pytest.mark.untidy
@pytest.mark.parametrize("way", ["settled", "stalled for good", "stalled", "removed", "handed back", "revoked"])
async def test_regression_the_end_of_a_lost_run_wakes_a_worker(timed: Timed, way: str) -> None:
    """When the run of a dead worker ends, another, idle worker wakes without a poll."""
    await timed.queue.set_global_concurrency(1)
    [job, *_] = await fill(timed.queue, 2)
    [lease] = await timed.fake_worker.claim()
    gate = Gate()
    async with worker_of(timed.queue, gate) as worker:
        await idle(worker)
        match way:
            case "settled":
                await timed.fake_worker.settle(lease)
            case "stalled":
                await timed.fake_worker.vanish(lease)
                await timed.fake_worker.sweep()
            case "stalled for good":
                await timed.fake_worker.vanish(lease)
                await timed.fake_worker.sweep(max_stalled=0)
            case "removed":
                await job.remove()
                assert await timed.fake_worker.end(lease) == 1
            case "handed back":
                await timed.fake_worker.leave()
            case _:
                await job.revoke()
                await timed.fake_worker.leave()
        await gate.running()
        gate.release()


# -- windows ----------------------------------------------------------------------------------------------------------


async def test_a_window_limits_starts_of_all_kinds(timed: Timed) -> None:
    await timed.queue.set_global_rate_limit(RateLimit(4, 60))
    assert await timed.queue.get_global_rate_limit() == RateLimit(4, 60)
    await timed.queue.set_key_limits(None, concurrency=100)
    for options in ({}, {"lifo": True}, {"priority": 1}, {"key": "k"}):
        await fill(timed.queue, 2, **options)
    assert len(await timed.run()) == 4
    assert await timed.run() == []
    await timed.clock.advance(61 * SECOND)
    assert len(await timed.run(3)) == 3
    assert len(await timed.run(3)) == 1
    assert await timed.run() == []


async def test_regression_no_window_has_twice_the_permitted_starts(timed: Timed) -> None:
    await timed.queue.set_global_rate_limit(RateLimit(10, 60))
    await fill(timed.queue, 200)
    starts: list[int] = []
    for second in range(0, 300, 7):
        starts += [second] * len(await timed.run())
        await timed.clock.advance(7 * SECOND)
    for start in starts:
        assert sum(start <= other < start + 59 for other in starts) <= 10
    assert len(starts) >= 45


async def test_a_window_can_be_changed_at_run_time(timed: Timed) -> None:
    await timed.queue.set_global_rate_limit(RateLimit(1, 3_600))
    await fill(timed.queue, 10)
    assert await timed.run() == ["0"]
    await timed.queue.set_global_rate_limit(RateLimit(3, 3_600))
    assert await timed.run() == ["1", "2"]
    await timed.queue.set_global_rate_limit(RateLimit(3, 60))
    await timed.clock.advance(2 * MINUTE)
    assert await timed.run() == ["3", "4", "5"]
    await timed.queue.remove_global_rate_limit()
    assert await timed.queue.get_global_rate_limit() is None
    assert await timed.run() == ["6", "7", "8", "9"]


@pytest.mark.parametrize(("most", "left"), [(10, 0), (12, 2), (5, 0)])
async def test_regression_a_longer_window_includes_the_starts_before_it(timed: Timed, most: int, left: int) -> None:
    await timed.queue.set_global_rate_limit(RateLimit(5, 10))
    await fill(timed.queue, 30)
    for _ in range(2):
        assert len(await timed.run()) == 5
        await timed.clock.advance(11 * SECOND)
    await timed.queue.set_global_rate_limit(RateLimit(most, 60))
    assert len(await timed.run()) == left
    await timed.clock.advance(39 * SECOND)
    assert len(await timed.run()) == min(5, most - left - 5)
    # Nothing is forgotten while the queue is empty either.
    lifetime = (await timed.store.lifetimes([f"{timed.fake_worker.base}:rate"]))[f"{timed.fake_worker.base}:rate"]
    assert lifetime > HOUR


async def test_a_temporarily_lowered_window_forgets_no_start(timed: Timed) -> None:
    await timed.queue.set_global_rate_limit(RateLimit(10, 3_600))
    await fill(timed.queue, 20)
    assert len(await timed.run()) == 10
    await timed.queue.set_global_rate_limit(RateLimit(1, 60))
    await timed.clock.advance(2 * MINUTE)
    assert len(await timed.run()) == 1
    await timed.queue.set_global_rate_limit(RateLimit(12, 3_600))
    assert len(await timed.run()) == 1


async def test_the_number_of_stored_starts_is_bounded(timed: Timed) -> None:
    await timed.queue.set_global_rate_limit(RateLimit(200, 1))
    await fill(timed.queue, 1_600)
    for _ in range(8):
        assert len(await timed.fake_worker.claim(200)) == 200
        await timed.clock.advance(2 * SECOND)
    assert await timed.fake_worker.claim() == []
    assert await timed.store.ask("ZCARD", f"{timed.fake_worker.base}:rate") in range(1_000, 1_300)
    await timed.fake_worker.leave()


async def test_removing_a_window_wakes_idle_workers(queue: AnyQueue) -> None:
    gate = Gate()
    await queue.set_global_rate_limit(RateLimit(1, 3_600))
    await fill(queue, 3)
    async with worker_of(queue, gate, concurrency=5) as worker:
        await gate.running()
        await idle(worker)
        await queue.set_global_rate_limit(RateLimit(2, 3_600))
        await gate.running()
        await queue.remove_global_rate_limit()
        await gate.running()
        assert (await queue.get_job_counts())["active"] == 3
        gate.release()


async def test_a_window_applies_to_real_workers(queue: AnyQueue) -> None:
    """Two workers that never poll start at most two jobs in any 200 ms."""
    await queue.set_global_rate_limit(RateLimit(2, 0.2))
    starts: list[Any] = []

    async def note(job: AnyJob) -> None:
        starts.append(job.processed_at)

    async with worker_of(queue, note, concurrency=5), worker_of(queue, note, concurrency=5):
        for job in await fill(queue, 8):
            await job.result(10)
    starts.sort()
    for first, third in zip(starts, starts[2:], strict=False):
        assert third - first >= timedelta(seconds=0.2)


async def test_a_long_window_does_not_change_the_order_of_delayed_jobs(timed: Timed) -> None:
    await timed.queue.set_global_rate_limit(RateLimit(1, 3_600))
    await fill(timed.queue, 1)
    await timed.queue.add("delayed", delay=10)
    await timed.run()
    await timed.clock.advance(20 * SECOND)
    assert await timed.run() == []
    assert await counts(timed.queue) == {"completed": 1, "waiting": 1}


async def test_expired_jobs_use_no_start(timed: Timed) -> None:
    await timed.queue.set_global_rate_limit(RateLimit(1, 3_600))
    await fill(timed.queue, 3, ttl=60)
    await timed.queue.add("live")
    await timed.clock.advance(2 * MINUTE)
    assert await timed.run() == ["live"]


# -- the gate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_rate_limited_in_a_job_without_a_key_stops_the_queue(timed: Timed, kind: str) -> None:
    job = await timed.queue.add("first", **KINDS[kind])
    [lease] = await timed.fake_worker.claim()
    await timed.queue.add("second")
    await timed.queue.add("keyed", key="k")
    await timed.fake_worker.settle(lease, "l", "60000")
    assert await timed.names() == []
    await job.refresh()
    assert (job.state, job.attempts_made, job.fence) == ("waiting", 0, 1)
    await timed.clock.advance(61 * SECOND)
    assert sorted(await timed.run()) == ["first", "keyed", "second"]
    await job.refresh()
    assert (job.attempts_made, job.fence) == (1, 2)


async def test_an_open_gate_leaves_no_data(timed: Timed) -> None:
    await timed.queue.add("n")
    [lease] = await timed.fake_worker.claim()
    await timed.fake_worker.settle(lease, "l", "60000")
    await timed.fake_worker.sweep()
    assert await timed.names() == []
    await timed.clock.advance(61 * SECOND)
    await timed.fake_worker.sweep()
    assert not [key for key in await timed.store.keys() if key.endswith(":limits")]
    assert await timed.run() == ["n"]


async def test_a_handler_can_raise_rate_limited(queue: AnyQueue) -> None:
    starts: list[tuple[str, Any]] = []

    async def handler(job: AnyJob) -> None:
        starts.append((job.name, job.processed_at))
        if job.name == "a" and job.fence == 1:
            raise RateLimited(0.3)

    async with worker_of(queue, handler):
        jobs = [await queue.add(name) for name in ("a", "b")]
        for job in jobs:
            await job.result(10)
        await jobs[0].refresh()
    assert [name for name, _ in starts] == ["a", "a", "b"]
    assert starts[1][1] - starts[0][1] >= timedelta(seconds=0.3)
    assert jobs[0].attempts_made == 1


async def test_the_gate_of_a_worker_that_leaves_opens_for_the_others(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> None:
        if job.fence == 1:
            raise RateLimited(0.5)

    async with worker_of(queue, handler) as leaving, worker_of(queue, echo) as staying:
        await idle(staying)
        await idle(leaving)
        await queue.pause()
        jobs = [await queue.add("n", number) for number in range(2)]
        await queue.resume()
        await queue.add("n", 9)
        await leaving.close()
        assert [await job.result(10) for job in jobs] == [0, 1]


async def test_until_empty_waits_for_the_gate(queue: AnyQueue) -> None:
    seen: list[int] = []

    async def handler(job: AnyJob) -> None:
        if job.data == 1 and job.fence == 1:
            raise RateLimited(0.1)
        seen.append(job.data)

    await fill(queue, 4)
    await worker_of(queue, handler).run(until_empty=True)
    assert sorted(seen) == [0, 1, 2, 3]


@pytest.mark.only_on("memory")
async def test_bad_limits_are_refused_before_anything_is_sent(storage: Storage, name: str) -> None:
    relay = Relay(storage)
    bad: Any = Queue[Any, Any](name, relay)
    for limit, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), ("3", TypeError), (True, TypeError)):
        with pytest.raises(error, match="concurrency"):
            await bad.set_global_concurrency(limit)
    for rate in (5, None, "5/s"):
        with pytest.raises(TypeError, match="rate_limit"):
            await bad.set_global_rate_limit(rate)
    assert relay.calls == []
    await bad.close()


async def test_limits_belong_to_their_queue(queue: AnyQueue, storage: Storage, name: str, store: Any) -> None:
    await queue.set_global_concurrency(1)
    async with Queue[Any, Any](name + "-2", storage) as other:
        await fill(other, 3)
        fake_worker = FakeWorker(other, store)
        assert len(await fake_worker.claim(5)) == 3
        await fake_worker.leave()


async def test_the_opening_of_a_window_wakes_as_many_workers_as_jobs_may_start(queue: AnyQueue) -> None:
    gate = Gate()

    async def block_later_jobs(job: AnyJob) -> Any:
        return await gate(job) if job.data else None

    await queue.set_global_rate_limit(RateLimit(4, 0.5))
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(worker_of(queue, block_later_jobs))
        for job in await queue.add_bulk([("n", 0)] * 4):
            await ended(job)
        await queue.add_bulk([("n", 1)] * 4)
        for _ in range(4):
            await gate.running()
        assert (await queue.get_job_counts())["active"] == 4
        gate.release()
