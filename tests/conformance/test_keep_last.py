"""Deduplication of mode keep_last: at most one job runs and one waits, and the last data always run."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from glidemq_async import Deduplication, JobOptions, Queue
from glidemq_async.storage import Storage
from tests.support.clocked_queue import MINUTE, SECOND, Timed
from tests.support.helpers import AnyQueue, Gate, counts, ended, job_events, worker_of

LAST = Deduplication("d", mode="keep_last")


@pytest.mark.everywhere
async def test_the_last_data_run_once_more_after_the_active_job(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, concurrency=4):
        first = await queue.add("n", 0, deduplication=LAST)
        await gate.running()
        added = [await queue.add("n", number, deduplication=LAST) for number in range(1, 6)]
        assert [job.outcome for job in added] == ["added"] + ["duplicate"] * 4
        assert [job.state for job in added] == ["delayed"] * 5
        assert {job.id for job in added} == {added[0].id}
        assert added[-1].data == 5
        assert await queue.check() == []
        gate.release()
        assert (await ended(first)).state == "completed"
        last = await ended(added[0])
    assert (last.state, last.data) == ("completed", 5)
    assert ("waiting", "followed") in await job_events(queue, last.id)
    assert await counts(queue) == {"completed": 2}
    assert await queue.get_deduplication_job_id("d") is None


async def test_a_job_that_has_not_started_takes_the_data(timed: Timed) -> None:
    first = await timed.queue.add("a", 1, deduplication=LAST, priority=3)
    await timed.queue.add("other", 0, priority=3)
    again = await timed.queue.add("b", 2, deduplication=LAST)
    assert (again.outcome, again.id, again.name, again.data, again.priority) == ("duplicate", first.id, "b", 2, 3)
    assert await timed.run() == ["b", "other"]
    await nothing_left(timed)


@pytest.mark.parametrize("kind", [{}, {"priority": 2}, {"lifo": True}, {"key": "k"}, {"timeout": 9}], ids=str)
async def test_every_kind_of_job_can_follow_another_one(timed: Timed, kind: dict[str, Any]) -> None:
    await timed.queue.add("first", deduplication=LAST, **kind)
    [run] = await timed.fake_worker.claim()
    await timed.queue.add("second", deduplication=LAST, **kind)
    await timed.queue.add("third", deduplication=LAST)
    assert await counts(timed.queue) == {"active": 1, "delayed": 1}
    assert await timed.names() == []
    assert await timed.fake_worker.settle(run) is None
    assert await timed.run() == ["third"]
    await nothing_left(timed)


@pytest.mark.parametrize("way", ["completed", "failed", "removed", "revoked", "stalled", "record deleted"])
async def test_every_end_of_a_run_starts_its_successor(timed: Timed, way: str) -> None:
    first = await timed.queue.add("first", deduplication=LAST)
    [run] = await timed.fake_worker.claim()
    second = await timed.queue.add("second", deduplication=LAST)
    if way == "removed":
        await first.remove()
    elif way == "stalled":
        await timed.fake_worker.vanish(run)
        await timed.fake_worker.sweep(max_stalled=0)
    else:
        if way == "revoked":
            await first.revoke()
        elif way == "record deleted":
            await timed.store.ask("DEL", f"{timed.fake_worker.base}:job:{first.id}")
        await timed.fake_worker.settle(
            run, *(("f", ";retries_exhausted;no") if way in ("failed", "revoked") else ("c", ""))
        )
    assert await second.get_state() == "waiting"
    assert await timed.queue.get_deduplication_job_id("d") == second.id
    assert await timed.run() == ["second"]
    await nothing_left(timed)


async def test_a_retry_does_not_start_the_successor(timed: Timed) -> None:
    await timed.queue.add("first", 1, deduplication=LAST)
    [run] = await timed.fake_worker.claim()
    second = await timed.queue.add("second", 2, deduplication=LAST)
    assert await timed.fake_worker.settle(run, "r", "60000 boom") is None
    assert await second.get_state() == "delayed"
    third = await timed.queue.add("third", 3, deduplication=LAST)
    assert (third.id, third.outcome) == (second.id, "duplicate")
    await timed.clock.advance(2 * MINUTE)
    assert await timed.run() == ["first"]
    assert await timed.run() == ["third"]
    await nothing_left(timed)


async def test_a_release_does_not_start_the_successor(timed: Timed) -> None:
    await timed.queue.add("first", deduplication=LAST)
    [run] = await timed.fake_worker.claim()
    await timed.queue.add("second", deduplication=LAST)
    assert await timed.fake_worker.settle(run, "b", "") is None
    [again] = await timed.fake_worker.claim()
    await timed.queue.add("third", deduplication=LAST)
    assert (again.name, await timed.names()) == ("first", [])
    assert await timed.fake_worker.settle(again) is None
    assert await timed.run() == ["third"]
    await nothing_left(timed)


async def test_a_delay_counts_from_the_end_of_the_run(timed: Timed) -> None:
    await timed.queue.add("first", deduplication=LAST)
    [run] = await timed.fake_worker.claim()
    await timed.queue.add("second", deduplication=LAST, delay=60)
    await timed.clock.advance(5 * MINUTE)
    assert await timed.fake_worker.settle(run) is None
    assert await timed.names() == []
    await timed.queue.add("third", deduplication=LAST)
    await timed.clock.advance(MINUTE + SECOND)
    assert await timed.run() == ["third"]
    await nothing_left(timed)


async def test_a_due_time_may_pass_before_the_run_ends(timed: Timed) -> None:
    await timed.queue.add("first", deduplication=LAST)
    [run] = await timed.fake_worker.claim()
    await timed.queue.add("second", deduplication=LAST, at=datetime.now(UTC) + timedelta(minutes=2))
    await timed.clock.advance(5 * MINUTE)
    assert await timed.names() == []
    assert await timed.fake_worker.settle(run) is None
    assert await timed.run() == ["second"]


@pytest.mark.parametrize("way", ["removed", "revoked", "expired"])
async def test_an_add_after_the_removal_of_the_successor_creates_another_one(timed: Timed, way: str) -> None:
    await timed.queue.add("first", deduplication=LAST)
    [run] = await timed.fake_worker.claim()
    second = await timed.queue.add("second", deduplication=LAST, ttl=30)
    if way == "expired":
        await timed.clock.advance(31 * SECOND)
    else:
        await (second.remove() if way == "removed" else second.revoke())
    third = await timed.queue.add("third", deduplication=LAST)
    assert (third.outcome, third.state, third.id != second.id) == ("added", "delayed", True)
    assert await timed.queue.check() == []  # also before the sweep that fails the expired one
    if way == "expired":
        await timed.fake_worker.sweep()
        assert await second.get_state() == "failed"
    assert await timed.queue.check() == []
    assert await timed.fake_worker.settle(run) is None
    assert await timed.run() == ["third"]
    await nothing_left(timed)


async def test_a_promoted_job_runs_concurrently_and_later_jobs_follow_it(timed: Timed) -> None:
    await timed.queue.add("first", deduplication=LAST)
    [first] = await timed.fake_worker.claim()
    second = await timed.queue.add("second", deduplication=LAST)
    await second.promote()
    [beside] = await timed.fake_worker.claim()
    third = await timed.queue.add("third", deduplication=LAST)
    assert await timed.fake_worker.settle(first) is None
    assert await third.get_state() == "delayed"
    assert await timed.fake_worker.settle(beside) is None
    assert await timed.run() == ["third"]
    await nothing_left(timed)


async def test_a_job_with_a_changed_delay_waits_for_its_due_time(timed: Timed) -> None:
    await timed.queue.add("first", deduplication=LAST)
    [run] = await timed.fake_worker.claim()
    second = await timed.queue.add("second", deduplication=LAST)
    await second.change_delay(60)
    assert await timed.queue.check() == []
    assert await timed.fake_worker.settle(run) is None
    assert await timed.names() == []
    await timed.clock.advance(MINUTE + SECOND)
    assert await timed.run() == ["second"]
    await nothing_left(timed)


async def test_an_owner_and_its_successor_can_both_be_removed(timed: Timed) -> None:
    await timed.queue.add("first", deduplication=LAST)
    [run] = await timed.fake_worker.claim()
    await timed.queue.add("second", deduplication=LAST)
    await timed.fake_worker.settle(run, "r", "60000 boom")
    assert await counts(timed.queue) == {"delayed": 2}
    assert await timed.queue.drain(delayed=True) == 2
    assert await counts(timed.queue) == {}
    await nothing_left(timed)


async def test_an_add_with_a_taken_custom_id_changes_no_data(timed: Timed) -> None:
    waiting = await timed.queue.add("waiting", 1, deduplication=LAST, job_id="mine")
    await timed.queue.add("other", 2, job_id="taken")
    for own in ("mine", "taken"):
        again = await timed.queue.add("again", 3, deduplication=LAST, job_id=own)
        assert (again.outcome, again.id) == ("duplicate", own)
    await waiting.refresh()
    assert (waiting.name, waiting.data) == ("waiting", 1)


async def test_keep_last_applies_inside_one_call(timed: Timed) -> None:
    await timed.queue.add("first", deduplication=LAST)
    [run] = await timed.fake_worker.claim()
    options = JobOptions(deduplication=LAST)
    jobs = await timed.queue.add_bulk([(str(number), number, options) for number in range(5)])
    assert [job.outcome for job in jobs] == ["added"] + ["duplicate"] * 4
    assert await timed.fake_worker.settle(run) is None
    assert await timed.run() == ["4"]


async def test_a_waiting_client_gets_the_result_of_the_last_data(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate):
        await queue.add("n", 0, deduplication=LAST)
        await gate.running()
        second = await queue.add("n", 1, deduplication=LAST)
        asked = asyncio.create_task(queue.add_and_wait("n", 2, deduplication=LAST, wait_timeout=10))
        async with asyncio.timeout(10):
            while second.data != 2:
                await second.refresh()
        gate.release()
        assert await asked == await second.result(10) == 2


async def test_a_job_retried_by_hand_owns_its_id_again(timed: Timed) -> None:
    first = await timed.queue.add("first", deduplication=LAST)
    assert await timed.run() == ["first"]
    await first.retry()
    assert await timed.queue.get_deduplication_job_id("d") == first.id
    second = await timed.queue.add("second", deduplication=LAST)
    assert (second.outcome, second.state) == ("added", "delayed")
    assert [await timed.run(), await timed.run()] == [["first"], ["second"]]
    await nothing_left(timed)


async def test_other_modes_of_the_same_id_leave_no_waiting_job(timed: Timed) -> None:
    await timed.queue.add("first", deduplication=Deduplication("d", ttl=60, mode="throttle"))
    [run] = await timed.fake_worker.claim()
    second = await timed.queue.add("second", deduplication=LAST)
    assert second.state == "delayed"
    # A debounced job owns the id from now on. The waiting job no longer waits for it.
    third = await timed.queue.add("third", deduplication=Deduplication("d", mode="debounce"), delay=60)
    assert (third.outcome, await second.get_state()) == ("added", "waiting")
    assert await timed.run() == ["second"]
    assert await timed.fake_worker.settle(run) is None
    await timed.clock.advance(2 * MINUTE)
    assert await timed.run() == ["third"]
    await nothing_left(timed)


async def test_an_id_can_be_released(timed: Timed) -> None:
    assert not await timed.queue.release_deduplication("d")
    once = Deduplication("d")
    first = await timed.queue.add("first", deduplication=once)
    assert await timed.queue.get_deduplication_job_id("d") == first.id
    assert await timed.queue.release_deduplication("d")
    assert await timed.queue.get_deduplication_job_id("d") is None
    second = await timed.queue.add("second", deduplication=once)
    assert second.outcome == "added"
    assert await timed.run() == ["first", "second"]
    await nothing_left(timed)


async def test_releasing_a_deduplication_id_starts_the_successor(timed: Timed) -> None:
    await timed.queue.add("first", deduplication=LAST)
    [run] = await timed.fake_worker.claim()
    await timed.queue.add("second", deduplication=LAST)
    assert await timed.queue.release_deduplication("d")
    third = await timed.queue.add("third", deduplication=LAST)
    assert (third.outcome, third.state) == ("added", "waiting")
    assert await timed.run() == ["second", "third"]
    assert await timed.fake_worker.settle(run) is None
    await nothing_left(timed)


def test_an_id_can_be_released_without_a_loop(storage: Storage, name: str) -> None:
    with Queue[Any, Any](name, storage.url).sync as queue:
        job = queue.add("n", deduplication=LAST)
        assert queue.get_deduplication_job_id("d") == job.id
        assert queue.release_deduplication("d")
        assert queue.get_deduplication_job_id("d") is None


async def nothing_left(timed: Timed) -> None:
    """Check that no key of the deduplication is left and that the stored data are sound."""
    assert [key for key in await timed.store.keys() if ":dedup" in key] == []
    assert await timed.queue.check() == []
