"""Jobs with a key run in order and one at a time, next to jobs of other keys. Nothing leaves a key stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from glidemq_async import JobOptions, Queue, RetryLater
from glidemq_async.functions.outcomes import Retention
from glidemq_async.storage import Storage
from tests.support.clocked_queue import MINUTE, SECOND, Timed
from tests.support.fake_worker import FakeWorker, Lease
from tests.support.helpers import AnyJob, AnyQueue, Gate, counts, ended, job_events, worker_of
from tests.support.stores import RunningStore


@pytest.mark.everywhere
async def test_jobs_of_a_key_run_in_order_and_one_at_a_time(queue: AnyQueue) -> None:
    seen: dict[str, list[int]] = {}
    running: set[str] = set()
    together = 0
    first_of_each_key = asyncio.Barrier(3)

    async def note(job: AnyJob) -> None:
        nonlocal together
        assert job.key is not None
        assert job.key not in running, f"two jobs of {job.key} run concurrently"
        running.add(job.key)
        together = max(together, len(running))
        seen.setdefault(job.key, []).append(job.data)
        if job.data == 0:
            await first_of_each_key.wait()
        await queue.get_job_logs("pause")
        running.discard(job.key)

    for number in range(20):
        await queue.add_bulk([("n", number, JobOptions(key=key)) for key in ("a", "b", "c d:{e}*")])
    workers = [worker_of(queue, note, concurrency=5) for _ in range(2)]
    for worker in workers:
        await worker.start()
    last = [await queue.add("n", 20, key=key) for key in ("a", "b", "c d:{e}*")]
    for job in last:
        assert (await ended(job)).state == "completed"
    for worker in workers:
        await worker.close()
    assert seen == {key: list(range(21)) for key in ("a", "b", "c d:{e}*")}
    assert together == 3


@pytest.mark.parametrize(
    "options",
    [{}, {"attempts": 3}, {"priority": 2}, {"delay": 0.01}, {"ttl": 60}, {"cost": 2}],
    ids=["key alone", "options", "priority", "delay", "ttl", "cost"],
)
async def test_a_keyed_job_knows_when_it_was_added(queue: AnyQueue, options: dict[str, Any]) -> None:
    """It knows this while it waits, in each of its runs, and after its end."""
    seen_in_runs: list[object] = []

    async def handler(job: AnyJob) -> None:
        seen_in_runs.append((job.created_at, job.key))
        if len(seen_in_runs) == 1:
            raise RetryLater(0)

    job = await queue.add("n", key="k 1 2", **options)
    created, waiting = job.created_at, await queue.get_job(job.id)
    assert created is not None
    assert waiting is not None
    assert (waiting.created_at, waiting.key) == (created, "k 1 2")
    async with worker_of(queue, handler):
        assert (await ended(job)).created_at == created
    assert seen_in_runs == [(created, "k 1 2")] * 2


async def test_jobs_of_other_keys_do_not_wait(queue: AnyQueue) -> None:
    gate = Gate()
    await queue.add_bulk([("n", key, JobOptions(key=key)) for key in "aaabbbc"])
    async with worker_of(queue, gate, concurrency=10):
        assert {(await gate.running()).data for _ in range(3)} == {"a", "b", "c"}
        assert await counts(queue) == {"key-waiting": 4, "active": 3}
        gate.release()


async def test_priority_orders_only_the_line_of_a_key(timed: Timed) -> None:
    for name, priority in (("c", 2), ("a", 0), ("d", 2), ("b", 1)):
        await timed.queue.add(name, key="k", priority=priority)
    await timed.queue.add("other", priority=1)
    assert [await timed.run(1) for _ in range(5)] == [["a"], ["b"], ["c"], ["d"], ["other"]]


async def test_a_keyed_job_shows_its_key_and_state(queue: AnyQueue) -> None:
    second = await queue.add("n", 2, key="k", priority=5)
    first = await queue.add("n", 1, key="k")
    assert (second.state, second.key, second.priority) == ("key-waiting", "k", 5)
    assert await counts(queue) == {"key-waiting": 2}
    assert await queue.count() == 2
    assert {job.data for job in await queue.get_jobs("key-waiting")} == {1, 2}
    stored = await queue.get_job(second.id)
    assert stored is not None
    assert (stored.state, stored.key, stored.priority, stored.lifo) == ("key-waiting", "k", 5, False)
    gate = Gate()
    async with worker_of(queue, gate, concurrency=5):
        running = await gate.running()
        assert (running.id, running.key) == (first.id, "k")
        gate.release()
        await ended(second)
    assert await job_events(queue, first.id) == [("added", "n"), ("active", ""), ("completed", "")]
    assert [kind for kind, _ in await job_events(queue, second.id)] == ["added", "active", "completed"]


async def test_a_retry_keeps_its_position_and_the_key_waits_for_it(timed: Timed) -> None:
    for name in ("a", "b", "c"):
        await timed.queue.add(name, key="k", attempts=3)
    [lease] = await timed.fake_worker.claim()
    await timed.fake_worker.settle(lease, "r", "60000 no")
    assert await timed.names() == []
    assert await counts(timed.queue) == {"delayed": 1, "key-waiting": 2}
    await timed.clock.advance(61 * SECOND)
    assert [await timed.run() for _ in range(3)] == [["a"], ["b"], ["c"]]


async def test_an_immediate_retry_goes_before_the_others(timed: Timed) -> None:
    for name in ("a", "b"):
        await timed.queue.add(name, key="k", attempts=3)
    [lease] = await timed.fake_worker.claim()
    await timed.fake_worker.settle(lease, "r", "0 no")
    assert [await timed.run() for _ in range(2)] == [["a"], ["b"]]


async def test_with_a_higher_concurrency_later_jobs_overtake_a_retry(timed: Timed) -> None:
    await timed.queue.set_key_limits("k", concurrency=2)
    for name in ("a", "b", "c", "d"):
        await timed.queue.add(name, key="k", attempts=3)
    leases = await timed.fake_worker.claim(10)
    assert [lease.name for lease in leases] == ["a", "b"]
    await timed.fake_worker.settle(leases[0], "r", "60000 no")
    assert await timed.names() == ["c"]
    await timed.clock.advance(61 * SECOND)
    await timed.fake_worker.settle(leases[1])
    assert await timed.names() == ["a"]
    await timed.fake_worker.leave()
    assert sorted(await timed.run()) == ["a", "c"]
    assert await timed.run() == ["d"]


async def test_a_delayed_job_gets_its_position_when_it_is_due(timed: Timed) -> None:
    await timed.queue.add("late", key="k", delay=60)
    await timed.queue.add("a", key="k")
    await timed.queue.add("b", key="k")
    assert await timed.run() == ["a"]
    await timed.clock.advance(61 * SECOND)
    assert await timed.names() == ["b"]
    await timed.queue.add("c", key="k")
    await timed.fake_worker.leave()
    assert [await timed.run() for _ in range(3)] == [["b"], ["late"], ["c"]]


async def test_a_promoted_job_gets_its_position_immediately(timed: Timed) -> None:
    late = await timed.queue.add("late", key="k", delay=60)
    await timed.queue.add("a", key="k")
    await late.promote()
    await timed.queue.add("b", key="k")
    assert [await timed.run() for _ in range(3)] == [["a"], ["late"], ["b"]]


async def test_run_until_empty_empties_the_lines_of_keys(queue: AnyQueue) -> None:
    seen: list[int] = []

    async def note(job: AnyJob) -> None:
        if job.data == 3 and job.fence == 1:
            raise RetryLater(0.05)
        seen.append(job.data)

    await queue.add_bulk([("n", number, JobOptions(key="k")) for number in range(8)])
    await worker_of(queue, note, concurrency=4).run(until_empty=True)
    assert seen == list(range(8))


async def test_a_thousand_keys_can_be_used(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number, JobOptions(key=str(number % 1_000))) for number in range(3_000)])
    seen: dict[str, list[int]] = {}

    async def note(job: AnyJob) -> None:
        assert job.key is not None
        seen.setdefault(job.key, []).append(job.data)

    await worker_of(queue, note, concurrency=300).run(until_empty=True)
    assert seen == {str(key): [key, key + 1_000, key + 2_000] for key in range(1_000)}


# -- nothing leaves a key stuck: each way in which a job leaves its line, a run or the wait for a retry --------------


async def _remove(timed: Timed, job: AnyJob) -> None:
    await job.remove()


async def _revoke(timed: Timed, job: AnyJob) -> None:
    await job.revoke()


async def _delay(timed: Timed, job: AnyJob) -> None:
    await job.change_delay(100_000)


async def _expire(timed: Timed, job: AnyJob) -> None:
    await timed.clock.advance(2 * MINUTE)


async def _expire_by_sweep(timed: Timed, job: AnyJob) -> None:
    await timed.clock.advance(2 * MINUTE)
    await timed.fake_worker.sweep()


async def _last_in_line(timed: Timed, job: AnyJob) -> None:
    await job.change_priority(9)


async def delete_job(timed: Timed, job_id: str) -> None:
    """Delete a job by hand: its record, or the texts of a compact job."""
    base = timed.fake_worker.base
    await timed.store.ask("DEL", f"{base}:job:{job_id}")
    await timed.store.ask("HDEL", f"{base}:compact", job_id)
    await timed.store.ask("HDEL", f"{base}:compact_runs", job_id)


async def _delete_record(timed: Timed, job: AnyJob) -> None:
    await delete_job(timed, job.id)


Way = Callable[[Timed, AnyJob], Awaitable[None]]


@pytest.mark.parametrize("position", [0, 1, 2], ids=["first", "middle", "last"])
@pytest.mark.parametrize("way", [_remove, _revoke, _delay, _expire, _expire_by_sweep, _last_in_line, _delete_record])
async def test_regression_a_gap_in_the_sequence_does_not_block_a_key(timed: Timed, way: Way, position: int) -> None:
    names = ["a", "b", "c"]
    ttl = 60 if way in (_expire, _expire_by_sweep) else None
    jobs = [
        await timed.queue.add(name, key="k", ttl=ttl if number == position else None)
        for number, name in enumerate(names)
    ]
    await way(timed, jobs[position])
    left = [name for number, name in enumerate(names) if number != position]
    assert [await timed.run() for _ in left] == [[name] for name in left]
    assert await timed.run() == (["c" if position == 2 else names[position]] if way is _last_in_line else [])
    await timed.queue.add("next", key="k")
    assert await timed.run() == ["next"]


async def _promote(timed: Timed, job: AnyJob) -> None:
    await job.promote()
    assert await timed.run() == ["a"]


async def _start_now(timed: Timed, job: AnyJob) -> None:
    await job.change_delay(0)
    assert await timed.run() == ["a"]


async def _wait_for_retry(timed: Timed, job: AnyJob) -> None:
    await timed.clock.advance(3_600 * SECOND)
    assert await timed.run() == ["a"]


async def _drain(timed: Timed, job: AnyJob) -> None:
    assert await timed.queue.drain(delayed=True) == 1


@pytest.mark.parametrize("concurrency", [None, 1, 2])
@pytest.mark.parametrize("way", [_remove, _revoke, _drain, _promote, _start_now, _wait_for_retry])
async def test_regression_no_slot_leaks_while_a_job_waits_for_its_retry(
    timed: Timed, way: Way, concurrency: int | None
) -> None:
    if concurrency:
        await timed.queue.set_key_limits("k", concurrency=concurrency)
    first = await timed.queue.add("a", key="k", attempts=5)
    [lease] = await timed.fake_worker.claim()
    await timed.fake_worker.settle(lease, "r", "600000 no")
    await way(timed, first)
    await timed.queue.add("b", key="k")
    await timed.queue.add("c", key="k")
    assert [await timed.run(1) for _ in range(2)] == [["b"], ["c"]]
    assert await counts(timed.queue) in ({"completed": 2}, {"completed": 2, "failed": 1}, {"completed": 3})


async def test_regression_draining_leaves_no_key_stuck(timed: Timed) -> None:
    await timed.queue.add_bulk([(name, None, JobOptions(key="k")) for name in "abc"])
    [lease] = await timed.fake_worker.claim()
    assert await timed.queue.drain() == 2
    await timed.queue.add("d", key="k")
    assert await timed.names() == []
    await timed.fake_worker.settle(lease)
    assert await timed.run() == ["d"]


async def test_a_retry_without_a_record_frees_the_key(timed: Timed) -> None:
    first = await timed.queue.add("a", key="k", attempts=5)
    await timed.queue.add("b", key="k")
    [lease] = await timed.fake_worker.claim()
    await timed.fake_worker.settle(lease, "r", "60000 no")
    await _delete_record(timed, first)
    await timed.clock.advance(2 * MINUTE)
    assert await timed.run() == ["b"]


async def _give_up(timed: Timed, lease: Lease) -> None:
    await timed.fake_worker.settle(lease, "f")


async def _release(timed: Timed, lease: Lease) -> None:
    await timed.fake_worker.settle(lease, "b")


async def _shut_down(timed: Timed, lease: Lease) -> None:
    await timed.fake_worker.leave()


async def _stall(timed: Timed, lease: Lease) -> None:
    await timed.fake_worker.vanish(lease)
    await timed.fake_worker.sweep()


async def _stall_for_good(timed: Timed, lease: Lease) -> None:
    await timed.fake_worker.vanish(lease)
    await timed.fake_worker.sweep(max_stalled=0)


async def _remove_run(timed: Timed, lease: Lease) -> None:
    await timed.queue.remove(lease.id)
    assert await timed.fake_worker.settle(lease) == "missing"


async def _revoke_run(timed: Timed, lease: Lease) -> None:
    assert await timed.queue.revoke(lease.id) is False
    await timed.fake_worker.settle(lease, "r", "60000 no")


async def _revoke_and_leave(timed: Timed, lease: Lease) -> None:
    assert await timed.queue.revoke(lease.id) is False
    await timed.fake_worker.leave()


async def _lose_record(timed: Timed, lease: Lease) -> None:
    await delete_job(timed, lease.id)
    assert await timed.fake_worker.settle(lease) == "missing"


ENDS: dict[Callable[[Timed, Lease], Awaitable[None]], bool] = {
    _give_up: False,
    _release: True,
    _shut_down: True,
    _stall: True,
    _stall_for_good: False,
    _remove_run: False,
    _revoke_run: False,
    _revoke_and_leave: False,
    _lose_record: False,
}


@pytest.mark.parametrize("concurrency", [None, 1, 3])
@pytest.mark.parametrize("way", ENDS, ids=lambda way: way.__name__)
async def test_every_end_of_a_run_frees_the_key(timed: Timed, way: Any, concurrency: int | None) -> None:
    """A released job also gets its old position."""
    if concurrency:
        await timed.queue.set_key_limits("k", concurrency=concurrency)
    await timed.queue.add_bulk([(name, None, JobOptions(key="k")) for name in "abcd"])
    [lease] = await timed.fake_worker.claim()
    await way(timed, lease)
    expected = ["a", "b", "c", "d"] if ENDS[way] else ["b", "c", "d"]
    assert [(await timed.run(1))[0] for _ in expected] == expected
    assert await timed.run() == []


async def test_regression_a_stale_outcome_frees_no_slot_of_another_run(timed: Timed, name: str) -> None:
    """A stalled job runs again. The first run's outcome must not start a second job of the key."""
    await timed.queue.add_bulk([(job, None, JobOptions(key="k")) for job in "abc"])
    [old] = await timed.fake_worker.claim()
    await timed.fake_worker.vanish(old)
    await timed.fake_worker.sweep()
    other = FakeWorker(timed.queue, timed.store)
    [new] = await other.claim(5)
    assert new.id == old.id
    for code in ("c", "f", "r", "b", "l", "d"):
        assert await timed.fake_worker.settle(old, code) == "stale"
        assert await timed.names() == []
    assert await other.settle(new) is None
    assert await timed.run() == ["b"]


async def test_regression_a_retry_does_not_run_next_to_the_active_job(timed: Timed) -> None:
    await timed.queue.add("a", key="k", attempts=5)
    await timed.queue.add("b", key="k")
    [lease] = await timed.fake_worker.claim()
    await timed.fake_worker.settle(lease, "r", "0 no")
    [again] = await timed.fake_worker.claim(10)
    assert again.name == "a"
    await timed.fake_worker.settle(again, "r", "60000 no")
    first = await timed.queue.get_job(again.id)
    assert first is not None
    await first.change_delay(120)
    await timed.clock.advance(61 * SECOND)
    assert await timed.names() == []
    await timed.clock.advance(61 * SECOND)
    assert [await timed.run() for _ in range(3)] == [["a"], ["b"], []]


async def test_regression_the_concurrency_is_used_completely(timed: Timed) -> None:
    """With a concurrency of three, the key runs three jobs as long as it has them, whatever their order of ending."""
    await timed.queue.set_key_limits("k", concurrency=3)
    await timed.queue.add_bulk([(str(number), None, JobOptions(key="k")) for number in range(9)])
    leases = await timed.fake_worker.claim(10)
    for _ in range(6):
        assert len(leases) == 3
        await timed.fake_worker.settle(leases.pop())
        leases += await timed.fake_worker.claim(10)
    for lease in leases:
        await timed.fake_worker.settle(lease)


async def test_an_ended_job_that_is_retried_waits_in_its_line(timed: Timed) -> None:
    first = await timed.queue.add("a", key="k")
    await timed.run()
    await timed.queue.add("b", key="k")
    [lease] = await timed.fake_worker.claim()
    await first.retry()
    assert await first.get_state() == "key-waiting"
    assert await timed.names() == []
    await timed.fake_worker.settle(lease)
    assert await timed.run() == ["a"]


async def test_a_handler_interrupted_at_shutdown_keeps_its_position(queue: AnyQueue) -> None:
    gate = Gate()
    await queue.add_bulk([("n", number, JobOptions(key="k")) for number in range(3)])
    async with worker_of(queue, gate, shutdown_timeout=0):
        await gate.running()
    assert await counts(queue) == {"key-waiting": 3}
    seen: list[int] = []

    async def note(job: AnyJob) -> None:
        seen.append(job.data)

    await worker_of(queue, note).run(until_empty=True)
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("most", [1, 2], ids=["no limits", "limits"])
async def test_the_next_jobs_start_after_a_call_that_completes_jobs_with_different_retentions(
    timed: Timed, most: int
) -> None:
    """A call sends a group of runs for each retention."""
    if most > 1:
        await timed.queue.set_key_limits(None, concurrency=most)
    await timed.queue.add_bulk([(key, None, JobOptions(key=key)) for _ in range(most + 1) for key in "abc"])
    leases = await timed.fake_worker.claim(3 * most)
    assert len(leases) == 3 * most
    await timed.fake_worker.complete(*leases, retention=[Retention(ord(lease.name)) for lease in leases])
    assert await timed.queue.check() == []
    assert sorted(await timed.names()) == ["a", "b", "c"]


async def test_two_queues_do_not_share_keys(storage: Storage, name: str, store: RunningStore) -> None:
    async with Queue[Any, Any](name, storage) as one, Queue[Any, Any](name + "-2", storage) as two:
        await one.add("n", key="k")
        await two.add("n", key="k")
        first, second = FakeWorker(one, store), FakeWorker(two, store)
        assert len(await first.claim(5)) == 1
        assert len(await second.claim(5)) == 1
        await first.leave()
        await second.leave()
