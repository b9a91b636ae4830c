"""Wake-ups for jobs of every order: an idle worker starts them immediately and on time, without polling."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

import pytest

from glidemq_async import JobOptions, Queue, RateLimit, RateLimited, TokenBucket
from glidemq_async.storage import Storage
from tests.support.clocked_queue import MINUTE, Timed
from tests.support.helpers import AnyJob, AnyQueue, Gate, Heard, echo, idle, soon, worker_of
from tests.support.recording_storage import Relay
from tests.support.stores import RunningStore
from tests.support.waiting_jobs import idle_workers
from tests.support.wakeup_latency import starts_immediately

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "prioritized": {"priority": 7},
    "lifo": {"lifo": True},
    "keyed": {"key": "k"},
    "keyed by priority": {"key": "k", "priority": 7},
}
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.everywhere
@each_kind
async def test_an_idle_worker_starts_a_new_job_within_milliseconds(queue: AnyQueue, kind: str) -> None:
    await starts_immediately(queue, 15, **KINDS[kind])


@each_kind
async def test_every_return_to_waiting_wakes_a_worker(queue: AnyQueue, kind: str) -> None:
    options = KINDS[kind]
    async with worker_of(queue, echo) as worker:
        await idle(worker)
        first = await queue.add("n", 1, **options)
        assert await first.result(5) == 1
        bulk = await queue.add_bulk([("n", number, JobOptions(**options)) for number in range(5)])
        assert [await job.result(5) for job in bulk] == list(range(5))
        delayed = await queue.add("n", 4, delay=60, **options)
        await delayed.promote()
        assert await delayed.result(5) == 4
        now = await queue.add("n", 5, delay=60, **options)
        await now.change_delay(0)
        assert await now.result(5) == 5
        due = await queue.add("n", 6, delay=0.1, **options)
        assert await due.result(5) == 6
        sooner = await queue.add("n", 7, delay=60, **options)
        await sooner.change_delay(0.1)
        assert await sooner.result(5) == 7
        await first.retry()
        assert await first.result(5) == 1
        await queue.pause()
        paused = await queue.add("n", 8, **options)
        await queue.resume()
        assert await paused.result(5) == 8
        await queue.pause()
        due = await queue.add("n", 9, delay=0.1, **options)
        await asyncio.sleep(0.2)
        await queue.resume()
        assert await due.result(5) == 9


@each_kind
async def test_an_earlier_due_time_resets_the_timer(queue: AnyQueue, kind: str) -> None:
    """One worker holds the timer for a later job. A new, earlier job resets it."""
    workers = [worker_of(queue, echo) for _ in range(3)]
    for worker in workers:
        await worker.start()
        await idle(worker)
    for number in range(5):
        await queue.add("n", number, delay=100 - number, **KINDS[kind])
        job = await queue.add("n", number, delay=0.15, **KINDS[kind])
        assert await job.result(5) == number
    for worker in workers:
        await worker.close()


@each_kind
async def test_a_retry_is_on_time(queue: AnyQueue, kind: str) -> None:
    async def fail_twice(job: AnyJob) -> int:
        if job.attempts_made < 2:
            raise ValueError("no")
        return job.attempts_made

    async with worker_of(queue, fail_twice), worker_of(queue, fail_twice):
        jobs = [await queue.add("n", attempts=3, backoff=0.1, **KINDS[kind]) for _ in range(3)]
        assert [await job.result(5) for job in jobs] == [2, 2, 2]


@each_kind
async def test_a_released_job_wakes_another_worker(queue: AnyQueue, kind: str) -> None:
    gate = Gate()
    leaving = worker_of(queue, gate, shutdown_timeout=0)
    await leaving.start()
    job = await queue.add("n", 1, **KINDS[kind])
    await gate.running()
    async with worker_of(queue, echo) as other:
        await idle(other)
        await leaving.close()
        assert await job.result(5) == 1


@each_kind
@pytest.mark.untidy
async def test_a_stalled_job_wakes_an_idle_worker(timed: Timed, kind: str) -> None:
    job = await timed.queue.add("n", 1, **KINDS[kind])
    [lease] = await timed.fake_worker.claim()
    async with worker_of(timed.queue, echo) as worker:
        await idle(worker)
        await timed.fake_worker.vanish(lease)
        await timed.fake_worker.sweep()
        assert await job.result(5) == 1


async def test_the_end_of_a_run_wakes_a_worker_for_the_next_job_of_its_key(queue: AnyQueue) -> None:
    """The worker that ended it has no free slot left, so another one must claim the next job."""
    gate, other_gate = Gate(), Gate()
    busy = worker_of(queue, gate, concurrency=2)
    await busy.start()
    await queue.add_bulk([("n", number, JobOptions(key="k")) for number in range(2)])
    await gate.running()
    await queue.add("n", "blocks")
    await gate.running()
    async with worker_of(queue, other_gate) as other:
        await idle(other)
        await queue.add("n", "blocks too", key="other")
        assert (await other_gate.running()).data == "blocks too"
        gate.release()
        assert (await gate.running()).data == 1
        other_gate.release()
    await busy.close()


@pytest.mark.untidy
@pytest.mark.parametrize("way", ["removed", "failed", "retried", "revoked", "limited", "missing"])
async def test_every_end_of_a_run_by_another_call_wakes_a_worker_for_the_key(timed: Timed, way: str) -> None:
    queue, fake_worker = timed.queue, timed.fake_worker
    first, second = [await queue.add("n", number, key="k", attempts=3) for number in range(2)]
    [lease] = await fake_worker.claim()
    async with worker_of(queue, echo) as worker:
        await idle(worker)
        match way:
            case "removed":
                await first.remove()
                await fake_worker.end(lease)
            case "failed":
                await fake_worker.settle(lease, "f")
            case "retried":
                await fake_worker.settle(lease, "r", "100 no")
            case "revoked":
                await first.revoke()
                await fake_worker.settle(lease, "f")
            case "limited":
                await fake_worker.settle(lease, "l", "100")
            case _:
                await timed.store.ask("DEL", f"{fake_worker.base}:job:{first.id}")
                await fake_worker.settle(lease)
        assert await second.result(5) == 1


@pytest.mark.untidy
@pytest.mark.parametrize("way", ["removed", "revoked", "put off", "promoted"])
async def test_a_key_that_no_longer_waits_for_a_retry_wakes_a_worker(timed: Timed, way: str) -> None:
    queue = timed.queue
    first = await queue.add("n", 0, key="k", attempts=3)
    second = await queue.add("n", 1, key="k")
    [lease] = await timed.fake_worker.claim()
    await timed.fake_worker.settle(lease, "r", "600000 no")
    async with worker_of(queue, echo) as worker:
        await idle(worker)
        match way:
            case "removed":
                await first.remove()
            case "revoked":
                await first.revoke()
            case "put off":
                await first.change_delay(0.2)
            case _:
                await first.promote()
        assert await second.result(5) == 1


async def test_an_expired_job_at_the_head_of_a_line_delays_no_other_job(timed: Timed) -> None:
    await timed.queue.add_bulk([("late", number, JobOptions(key="k", ttl=60)) for number in range(20)])
    job = await timed.queue.add("live", 1, key="k")
    await timed.clock.advance(2 * MINUTE)
    async with worker_of(timed.queue, echo):
        assert await job.result(5) == 1


async def test_many_expired_jobs_are_passed_over_in_short_calls(storage: Storage, name: str) -> None:
    relay = Relay(storage)
    async with Queue[Any, Any](name, relay) as queue:
        await queue.pause()
        for options in KINDS.values():
            await queue.add_bulk(
                [("late", None, JobOptions(ttl=0.001, keep_failed=0, **options)) for _ in range(1_500)]
            )
        jobs = [await queue.add("live", number, **options) for number, options in enumerate(KINDS.values())]
        ended: list[int] = []

        async def count(function: str, args: Sequence[Any], reply: Any) -> None:
            if function == "settleAndClaim":
                ended.append((await queue.get_job_counts())["failed"])

        async with worker_of(queue, echo, concurrency=10) as worker:
            await idle(worker)
            relay.after_call = count
            await queue.resume()
            for number, job in enumerate(jobs):
                assert await job.result(10) == number
            relay.after_call = None
    steps = [after - before for before, after in pairwise(ended)]
    assert max(steps) <= 2_000, steps


@pytest.mark.parametrize("kind", ["plain", "prioritized", "lifo", "keyed"])
async def test_more_jobs_can_be_due_than_one_call_promotes(queue: AnyQueue, kind: str) -> None:
    options: list[dict[str, Any]] = [{"key": f"k{n}"} if kind == "keyed" else KINDS[kind] for n in range(700)]
    jobs = await queue.add_bulk([("n", n, JobOptions(delay=0.3, **given)) for n, given in enumerate(options)])
    async with worker_of(queue, echo, concurrency=5), worker_of(queue, echo, concurrency=5):
        for number, job in enumerate(jobs):
            assert await job.result(10) == number


# -- limits -----------------------------------------------------------------------------------------------------------


async def test_the_opening_of_a_keys_window_wakes_a_worker(queue: AnyQueue) -> None:
    await queue.set_key_limits("k", concurrency=5, rate_limit=RateLimit(1, 0.2))
    async with worker_of(queue, echo, concurrency=5), worker_of(queue, echo, concurrency=5):
        jobs = [await queue.add("n", number, key="k") for number in range(4)]
        assert [await job.result(5) for job in jobs] == [0, 1, 2, 3]


async def test_the_refill_of_a_bucket_wakes_a_worker(queue: AnyQueue) -> None:
    await queue.set_key_limits("k", concurrency=5, token_bucket=TokenBucket(1, 10))
    async with worker_of(queue, echo, concurrency=5):
        jobs = [await queue.add("n", number, key="k", cost=1 + number) for number in range(4)]
        assert [await job.result(5) for job in jobs] == [0, 1, 2, 3]


async def test_the_end_of_a_pause_wakes_a_worker(queue: AnyQueue, store: RunningStore) -> None:
    async with worker_of(queue, echo) as worker, worker_of(queue, echo):
        await idle(worker)
        await queue.pause_key("k", 0.2)
        job = await queue.add("n", 1, key="k")
        assert await job.result(5) == 1
        await queue.pause_key("k", 60)
        job = await queue.add("n", 2, key="k")
        await idle_workers(queue, store, 2)  # a worker may have looked at the job
        await queue.pause_key("k", 0.1)
        assert await job.result(5) == 2
        await queue.pause_key("k", 60)
        job = await queue.add("n", 3, key="k")
        await idle_workers(queue, store, 2)  # a worker may have looked at the job
        await queue.pause_key("k", 0)
        assert await job.result(5) == 3


@each_kind
async def test_the_opening_of_the_queues_window_wakes_a_worker(queue: AnyQueue, kind: str) -> None:
    await queue.set_global_rate_limit(RateLimit(1, 0.2))
    async with worker_of(queue, echo, concurrency=5), worker_of(queue, echo):
        jobs = [await queue.add("n", number, **KINDS[kind]) for number in range(4)]
        assert sorted([await job.result(5) for job in jobs]) == [0, 1, 2, 3]


@each_kind
async def test_a_free_slot_of_the_queue_wakes_another_worker(queue: AnyQueue, kind: str) -> None:
    """The worker whose run ends signs off immediately, so the server must wake the idle worker for the free slot."""
    await queue.set_global_concurrency(1)
    gate = Gate()
    leaving = worker_of(queue, gate)
    await leaving.start()
    await queue.add("n", 0)
    await gate.running()
    async with worker_of(queue, echo) as worker:
        await idle(worker)
        job = await queue.add("n", 1, **KINDS[kind])
        stopping = Heard(leaving, "closing")
        closing = asyncio.create_task(leaving.close())
        await stopping.next()
        gate.release()
        await closing
        assert await job.result(5) == 1


@each_kind
async def test_the_end_of_a_rate_limit_wakes_a_worker(queue: AnyQueue, kind: str) -> None:
    async def once(job: AnyJob) -> Any:
        if job.fence == 1:
            raise RateLimited(0.15)
        return job.data

    async with worker_of(queue, once), worker_of(queue, once, concurrency=3):
        jobs = [await queue.add("n", number, **KINDS[kind]) for number in range(3)]
        assert sorted([await job.result(5) for job in jobs]) == [0, 1, 2]


async def test_the_worker_with_the_timer_of_a_limit_may_leave(queue: AnyQueue) -> None:
    await queue.set_key_limits("k", rate_limit=RateLimit(1, 0.5))
    workers = [worker_of(queue, echo) for _ in range(3)]
    for worker in workers:
        await worker.start()
        await idle(worker)
    await (await queue.add("n", 0, key="k")).result(5)
    job = await queue.add("n", 1, key="k")
    await workers[0].close()
    await workers[1].close()
    assert await job.result(5) == 1
    await workers[2].close()


async def test_the_worker_with_the_timer_of_the_gate_may_leave(queue: AnyQueue, store: RunningStore) -> None:
    await queue.set_global_rate_limit(RateLimit(1, 0.5))
    workers = [worker_of(queue, echo) for _ in range(3)]
    for worker in workers:
        await worker.start()
        await idle(worker)
    await (await queue.add("n", 0)).result(5)
    job = await queue.add("n", 1)
    await idle_workers(queue, store, 3)
    await workers[0].close()
    await workers[1].close()
    assert await job.result(5) == 1
    await workers[2].close()


async def test_an_idle_queue_with_limits_makes_no_calls(storage: Storage, name: str) -> None:
    """A worker has no fixed tick. It does not poll between two times at which a job can start."""
    relay = Relay(storage)
    async with Queue[Any, Any](name, relay) as queue:
        await queue.set_key_limits("k", rate_limit=RateLimit(1, 3_600))
        workers = [worker_of(queue, echo) for _ in range(5)]
        for worker in workers:
            await worker.start()
            await idle(worker)
        await (await queue.add("n", 0, key="k")).result(5)
        for options in KINDS.values():
            await queue.add("n", 1, delay=60, **options)
        await queue.add("n", 1, key="k")
        await relay.quiet(queue)
        relay.calls.clear()
        await asyncio.sleep(0.6)
        assert [call for call in relay.calls if call == "settleAndClaim"] == []
        for worker in workers:
            await worker.close()


@each_kind
async def test_one_job_wakes_one_worker(storage: Storage, name: str, store: RunningStore, kind: str) -> None:
    relay = Relay(storage)
    async with Queue[Any, Any](name, relay) as queue:
        workers = [worker_of(queue, echo) for _ in range(10)]
        for worker in workers:
            await worker.start()
        await idle_workers(queue, store, len(workers))
        await relay.quiet(queue)
        relay.calls.clear()
        assert await queue.add_and_wait("n", 1, wait_timeout=5, **KINDS[kind]) == 1
        await relay.quiet(queue)
        assert relay.calls.count("settleAndClaim") <= 3
        for worker in workers:
            await worker.close()


@each_kind
async def test_a_burst_of_jobs_starves_no_worker(queue: AnyQueue, kind: str) -> None:
    workers = [worker_of(queue, echo, concurrency=3) for _ in range(3)]
    for worker in workers:
        await worker.start()
    for number in range(40):
        options = dict(KINDS[kind])
        if "key" in options:
            options["key"] = f"k{number % 4}"
        jobs = await asyncio.gather(*(queue.add("n", number, **options) for _ in range(1 + number % 7)))
        for job in jobs:
            assert await job.result(5) == number
    for worker in workers:
        await worker.close()


async def close_by_rate(queue: AnyQueue) -> None:
    """Use up the window of the queue with one start."""
    await queue.set_global_rate_limit(RateLimit(1, 3_600))
    await (await queue.add("n", "first")).result(5)


async def close_by_gate(queue: AnyQueue) -> None:
    """Close the gate of the queue by a handler."""
    job = await queue.add("n", "rate-limited")
    async with asyncio.timeout(5):
        while job.state not in ("waiting", "completed") or not job.fence:
            await job.refresh()


async def close_by_concurrency(queue: AnyQueue) -> None:
    """Run as many jobs as permitted."""
    await queue.set_global_concurrency(1)
    job = await queue.add("n", "long")
    async with asyncio.timeout(5):
        while await job.get_state() != "active":
            pass


GATE_SECONDS = 1.5
CLOSINGS = {"rate": close_by_rate, "gate": close_by_gate, "concurrency": close_by_concurrency}


@pytest.mark.parametrize("way", CLOSINGS)
@each_kind
async def test_regression_adds_to_a_closed_queue_wake_no_worker(
    storage: Storage, name: str, way: str, kind: str
) -> None:
    """Only the worker that becomes the timer wakes. When the queue opens, one worker wakes per job that may start."""
    loop, gate, done = asyncio.get_running_loop(), asyncio.Event(), asyncio.Queue[Any]()
    opens: list[float] = []

    async def work(job: AnyJob) -> None:
        if job.data == "rate-limited" and job.fence == 1:
            opens.append(loop.time() + GATE_SECONDS)
            raise RateLimited(GATE_SECONDS)
        if job.data == "long":
            await gate.wait()
        done.put_nowait(job.data)

    relay = Relay(storage)
    async with Queue[Any, Any](name, relay) as queue, AsyncExitStack() as stack:
        for _ in range(4):
            await idle(await stack.enter_async_context(worker_of(queue, work)))
        await queue.set_key_limits(None, concurrency=100)
        await CLOSINGS[way](queue)
        await relay.quiet(queue)
        relay.calls.clear()
        for number in range(20):
            await queue.add("n", number, **KINDS[kind])
        await relay.quiet(queue)
        claims = relay.calls.count("settleAndClaim")
        # The gate opens by itself, and a pausing host may have passed that time.
        assert claims <= 2 or (opens and loop.time() > opens[0])
        gate.set()
        await queue.set_global_concurrency(None)
        await queue.remove_global_rate_limit()
        found = {await soon(done.get()) for _ in range(21)}
        assert found >= set(range(20))
