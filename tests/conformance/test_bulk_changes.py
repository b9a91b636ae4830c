"""Promoting and cleaning many waiting jobs."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import Deduplication, Queue
from glidemq_async.queues.cleaning import CleanState
from glidemq_async.storage import Storage
from tests.support.clocked_queue import MINUTE, Timed
from tests.support.helpers import AnyQueue, counts, history


@pytest.mark.everywhere
async def test_promoting_starts_all_delayed_jobs(queue: AnyQueue) -> None:
    for number in range(600):
        await queue.add("n", number, delay=600 + number, priority=number % 2)
    keyed = await queue.add("keyed", delay=900, key="k")
    assert await queue.promote_jobs(100) == 100
    assert await counts(queue) == {"waiting": 50, "prioritized": 50, "delayed": 501}
    assert [job.data for job in await queue.get_jobs("waiting", 0, 2)] == [0, 2, 4]
    assert await queue.promote_jobs() == 501
    assert await counts(queue) == {"waiting": 300, "prioritized": 300, "key-waiting": 1}
    assert await queue.promote_jobs() == 0
    assert ("waiting", "promoted") in [
        (event.kind, event.detail) for event in await history(queue) if event.job_id == keyed.id
    ]
    assert await queue.check() == []


async def test_promoting_leaves_jobs_that_follow_another_one(timed: Timed) -> None:
    last = Deduplication("d", mode="keep_last")
    await timed.queue.add("first", deduplication=last)
    [run] = await timed.fake_worker.claim()
    await timed.queue.add("second", deduplication=last)
    await timed.queue.add("third", delay=60)
    assert await timed.queue.promote_jobs() == 1
    assert await timed.run() == ["third"]
    assert await timed.fake_worker.settle(run) is None
    assert await timed.run() == ["second"]


async def test_promoting_starts_a_delayed_retry(timed: Timed) -> None:
    await timed.queue.add("n", attempts=2)
    [run] = await timed.fake_worker.claim()
    await timed.fake_worker.settle(run, "r", "60000 boom")
    assert await timed.queue.promote_jobs(0) == 0
    assert await timed.queue.promote_jobs(5) == 1
    assert await timed.run() == ["n"]


@pytest.mark.parametrize(
    ("state", "options"),
    [("waiting", {}), ("waiting", {"lifo": True}), ("prioritized", {"priority": 1}), ("key-waiting", {"key": "k"}),
     ("delayed", {"delay": 6_000})],
    ids=str,
)  # fmt: skip
async def test_cleaning_removes_jobs_that_have_waited_for_too_long(
    timed: Timed, state: CleanState, options: dict[str, Any]
) -> None:
    old = [await timed.queue.add("old", number, **options) for number in range(70)]
    await timed.clock.advance(10 * MINUTE)
    young = [await timed.queue.add("young", **options) for _ in range(3)]
    others = await timed.queue.add("other", priority=0 if state == "prioritized" else 5, job_id="other")
    ids = {job.id for job in old}
    first = await timed.queue.clean(300, 50, state)
    assert len(first) == 50
    assert set(first) < ids
    rest = await timed.queue.clean(300, 1_000, state)
    assert {*first, *rest} == ids
    assert await timed.queue.clean(300, 1_000, state) == []
    assert await timed.queue.clean(3_000, 1_000, state) == []
    left = {
        job.id
        for kind in ("waiting", "prioritized", "key-waiting", "delayed")
        for job in await timed.queue.get_jobs(kind)
    }
    assert left == {*(job.id for job in young), others.id}
    assert [event.detail for event in await history(timed.queue) if event.kind == "cleaned"] == ["50", "20"]
    assert await timed.queue.check() == []


async def test_cleaning_measures_a_retry_from_its_add(timed: Timed) -> None:
    old = await timed.queue.add("old")
    [run] = await timed.fake_worker.claim()
    await timed.clock.advance(10 * MINUTE)
    await timed.queue.add("young")
    await timed.fake_worker.settle(run, "r", "0 boom")
    assert await timed.queue.clean(300, 10, "waiting") == [old.id]
    assert await timed.run() == ["young"]


async def test_lifo_jobs_are_cleaned_in_the_order_in_which_they_would_start(queue: AnyQueue) -> None:
    jobs = [await queue.add("n", number, lifo=True) for number in range(5)]
    newest_first = [job.id for job in reversed(jobs)]
    assert await queue.clean(0, 2, "waiting") == newest_first[:2]
    assert await queue.clean(0, 10, "waiting") == newest_first[2:]


async def test_cleaning_refuses_active_jobs(queue: AnyQueue) -> None:
    running: Any = "active"
    with pytest.raises(ValueError, match=r"state must be one of completed, failed, waiting, .*'active'"):
        await queue.clean(0, 10, running)
    with pytest.raises(ValueError, match="count"):
        await queue.promote_jobs(-1)


def test_promoting_works_without_a_loop(storage: Storage, name: str) -> None:
    with Queue[Any, Any](name, storage.url).sync as queue:
        queue.add("n", delay=60)
        assert queue.promote_jobs() == 1
        assert len(queue.clean(state="waiting")) == 1
