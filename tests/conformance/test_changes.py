"""Changing the priority or the delay of a job that has not started, and promoting it."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import JobNotFound, JobStateError, Queue
from glidemq_async.storage import Storage
from tests.support.clocked_queue import MINUTE, SECOND, Timed
from tests.support.helpers import AnyQueue, Gate, counts, echo, ended, job_events, worker_of
from tests.support.recording_storage import Relay

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lifo": {"lifo": True},
    "prioritized": {"priority": 5},
    "keyed": {"key": "k"},
    "keyed by priority": {"key": "k", "priority": 5},
}


@pytest.mark.everywhere
async def test_every_kind_of_waiting_job_can_be_changed(queue: AnyQueue) -> None:
    job = await queue.add("n", 1)
    await job.change_priority(3)
    assert (await job.get_state(), job.priority) == ("prioritized", 3)
    await job.change_delay(60)
    assert (await job.get_state(), job.priority) == ("delayed", 3)
    await job.change_priority(2)
    await job.promote()
    assert (await job.get_state(), job.priority) == ("prioritized", 2)
    await job.change_priority(0)
    assert (await job.get_state(), job.priority) == ("waiting", 0)
    async with worker_of(queue, echo):
        assert await job.result(10) == 1
    kinds = await job_events(queue, job.id)
    assert ("changed", "priority 3") in kinds
    assert ("changed", "delay 60000") in kinds


@pytest.mark.parametrize("before", [0, 1, 5])
@pytest.mark.parametrize("after", [0, 1, 5])
async def test_a_changed_job_goes_to_the_end_of_its_new_priority(timed: Timed, before: int, after: int) -> None:
    changed = await timed.queue.add("changed", priority=before)
    for priority in (0, 1, 5):
        await timed.queue.add(str(priority), priority=priority)
    await changed.change_priority(after)
    order = ["0", "1", "5"]
    order.insert(order.index(str(before)) if after == before == 0 else order.index(str(after)) + 1, "changed")
    found = await timed.run()
    if before == after:
        assert found.index("changed") - found.index(str(after)) in (-1, 1)
    else:
        assert found == order


async def test_a_lifo_job_stays_lifo_only_at_priority_zero(timed: Timed) -> None:
    first = await timed.queue.add("a", lifo=True)
    await timed.queue.add("b", lifo=True)
    await first.change_priority(0)
    assert [job.name for job in await timed.queue.get_jobs("waiting")] == ["b", "a"]
    await first.change_priority(4)
    assert (await first.get_state(), first.lifo) == ("prioritized", False)
    assert await timed.run() == ["b", "a"]


async def test_a_change_reorders_the_line_of_a_key(timed: Timed) -> None:
    jobs = [await timed.queue.add(name, key="k") for name in "abcd"]
    await jobs[0].change_priority(2)
    await jobs[1].change_priority(2)
    await jobs[3].change_priority(1)
    assert [job.priority for job in await timed.queue.get_jobs("key-waiting")] == [2, 2, 0, 1]
    assert [await timed.run() for _ in range(4)] == [["c"], ["d"], ["a"], ["b"]]


async def test_a_changed_priority_of_a_delayed_job_applies_when_it_is_due(timed: Timed) -> None:
    jobs = [await timed.queue.add(name, delay=60) for name in "abc"]
    await jobs[0].change_priority(9)
    await jobs[2].change_priority(1)
    assert [await job.get_state() for job in jobs] == ["delayed"] * 3
    await timed.clock.advance(61 * SECOND)
    assert await timed.run() == ["b", "c", "a"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_waiting_job_can_be_delayed(timed: Timed, kind: str) -> None:
    job = await timed.queue.add("put off", **KINDS[kind])
    other = await timed.queue.add("other", **KINDS[kind])
    await job.change_delay(120)
    assert await job.get_state() == "delayed"
    assert await timed.run() == ["other"]
    await timed.clock.advance(MINUTE)
    assert await timed.names() == []
    await timed.clock.advance(61 * SECOND)
    assert await timed.run() == ["put off"]
    await job.refresh()
    await other.refresh()
    assert job.created_at is not None
    assert other.created_at is not None
    assert job.created_at <= other.created_at
    assert (job.priority, job.key) == (KINDS[kind].get("priority", 0), KINDS[kind].get("key"))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_delay_can_be_shortened_lengthened_and_ended(timed: Timed, kind: str) -> None:
    jobs = [await timed.queue.add(name, delay=600, **KINDS[kind]) for name in ("short", "long", "now", "promoted")]
    await jobs[0].change_delay(60)
    await jobs[1].change_delay(6_000)
    await jobs[2].change_delay(0)
    assert await timed.run() == ["now"]
    await jobs[3].promote()
    assert await timed.run() == ["promoted"]
    await timed.clock.advance(61 * SECOND)
    assert await timed.run() == ["short"]
    await timed.clock.advance(20 * MINUTE)
    assert await timed.names() == []
    await timed.clock.advance(100 * MINUTE)
    assert await timed.run() == ["long"]


async def test_delay_zero_leaves_a_waiting_job_unchanged(timed: Timed) -> None:
    jobs = [await timed.queue.add(name) for name in "ab"]
    await jobs[0].change_delay(0)
    assert await timed.run() == ["a", "b"]


async def test_a_released_job_can_be_changed(timed: Timed) -> None:
    first = await timed.queue.add("a")
    [lease] = await timed.fake_worker.claim()
    await timed.fake_worker.settle(lease, "b")
    await timed.queue.add("b")
    await first.change_priority(1)
    assert await timed.run() == ["b", "a"]
    second = await timed.queue.add("c")
    [lease] = await timed.fake_worker.claim()
    await timed.fake_worker.settle(lease, "b")
    await second.change_delay(60)
    assert await timed.names() == []
    await timed.clock.advance(61 * SECOND)
    assert await timed.run() == ["c"]


async def test_a_job_between_attempts_can_be_changed(timed: Timed) -> None:
    job = await timed.queue.add("a", attempts=3)
    [lease] = await timed.fake_worker.claim()
    await timed.fake_worker.settle(lease, "r", "600000 no")
    await job.change_priority(4)
    await job.change_delay(60)
    await timed.clock.advance(61 * SECOND)
    await timed.queue.add("b")
    assert await timed.run() == ["b", "a"]
    await job.refresh()
    assert job.attempts_made == 2


async def test_an_active_or_ended_job_cannot_be_changed(queue: AnyQueue) -> None:
    gate = Gate()
    job = await queue.add("n", 1)
    async with worker_of(queue, gate):
        await gate.running()
        for change in (job.change_priority(1), job.change_delay(1), job.promote()):
            with pytest.raises(JobStateError, match="active"):
                await change
        gate.release()
        await ended(job)
    for change in (job.change_priority(1), job.change_delay(1), job.promote()):
        with pytest.raises(JobStateError, match="completed"):
            await change
    await job.remove()
    for change in (job.change_priority(1), job.change_delay(1), job.promote()):
        with pytest.raises(JobNotFound):
            await change
    assert await counts(queue) == {}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "plain"] + ["plain"])
async def test_only_a_delayed_job_can_be_promoted(queue: AnyQueue, kind: str) -> None:
    job = await queue.add("n", **KINDS[kind])
    with pytest.raises(JobStateError, match="delayed"):
        await job.promote()


async def test_regression_a_changed_job_runs_once(timed: Timed) -> None:
    """The change removes the old stream entry. A claim of that entry would run a copy of the job."""
    job = await timed.queue.add("a")
    for priority in (1, 0, 3, 0, 2):
        await job.change_priority(priority)
    await job.change_delay(1)
    await job.change_delay(0)
    assert await timed.run() == ["a"]
    assert await timed.run() == []
    await job.refresh()
    assert job.fence == 1


@pytest.mark.only_on("memory")
async def test_bad_changes_are_refused_before_anything_is_sent(storage: Storage, name: str) -> None:
    relay = Relay(storage)
    async with Queue[Any, Any](name, relay) as queue:
        job: Any = await queue.add("n", 1)
        relay.calls.clear()
        for priority, error in ((-1, ValueError), (2**21 + 1, ValueError), (1.5, TypeError), ("1", TypeError)):
            with pytest.raises(error, match="priority"):
                await job.change_priority(priority)
        for delay, error in ((-1, ValueError), (float("nan"), ValueError), ("1", TypeError), (None, TypeError)):
            with pytest.raises(error, match="delay"):
                await job.change_delay(delay)
        assert relay.calls == []
