"""The overview of all queues: pauses, failure groups, and queues that cannot be read."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from glidemq_async import Job, Queue
from glidemq_async.ops import Actor, Ops
from glidemq_async.ops.verdicts import FEW_FAILURES, judge
from glidemq_async.storage import Storage
from tests.support.helpers import AnyQueue, ended, worker_of
from tests.support.stores import RunningStore


@pytest.mark.parametrize(
    ("foreign", "why"),
    [
        (("HSET", "meta", "owner", "somebody", "layout", "1"), "found data of somebody"),
        (("HSET", "meta", "owner", "glidemq_async", "layout", "1"), "the layout of an older version"),
        (("RPUSH", "fifo", "x"), ""),
        (("SET", "meta2", "x"), ""),
    ],
)
async def test_a_queue_that_cannot_be_read_does_not_hide_the_others(
    storage: Storage, store: RunningStore, queue: AnyQueue, foreign: tuple[str, ...], why: str
) -> None:
    await queue.add("n")
    strange = f"{queue.name}-strange"
    command, key, *words = foreign
    written, known = f"glide:{{{strange}}}:{key}", f"glide:{{{strange}}}:meta"
    await store.ask("HSET", known, "owner", "somebody")
    await store.ask(command, written, *words)
    try:
        async with Ops(storage) as ops:
            assert queue.name in [each.name for each in await ops.queues()]
            overview = await ops.overview()
            assert queue.name in [each.name for each in overview.queues]
            assert strange not in [each.name for each in overview.queues]
            assert why in overview.unreadable[strange]
            assert (await ops.workers(), await ops.schedules(), await ops.failures()) == ([], [], [])
            await store.ask("DEL", written, known)
            assert strange not in (await ops.overview()).unreadable
    finally:
        await store.ask("DEL", written, known)


async def test_requests_at_the_same_time_share_readings(storage: Storage, queue: AnyQueue) -> None:
    await queue.connect()
    async with Ops(storage) as ops:
        first = asyncio.create_task(ops.overview())
        await asyncio.sleep(0)  # its reading has begun
        await queue.add("n")
        others = await asyncio.gather(*(ops.overview() for _ in range(20)))
        assert {id(each) for each in others} == {id(others[0])}
        assert others[0] is not await first
        assert others[0].totals["waiting"] == 1
        await queue.add("n")
        assert (await ops.overview()).totals["waiting"] == 2


async def test_queues_are_read_together(storage: Storage, queue: AnyQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    await queue.add("n")
    other = f"{queue.name}-paused"
    alone: list[str] = []
    call = storage.call

    async def recorded(function: str, *args: Any, **options: Any) -> object:
        alone.append(function)
        return await call(function, *args, **options)

    async with Queue[object, object](other, storage) as paused, Ops(storage) as ops:
        await paused.pause()
        monkeypatch.setattr(storage, "call", recorded)
        rows = {each.name: each for each in await ops.queues([queue.name, other])}
        monkeypatch.undo()
        assert (rows[queue.name].counts["waiting"], rows[queue.name].paused) == (1, None)
        assert rows[other].paused is not None
        assert alone == ["getSettings"]


async def test_dead_letters_that_wait_for_people_are_no_stopped_work(storage: Storage, queue: AnyQueue) -> None:
    dead = f"{queue.name}-dead"
    await queue.set_dead_letter_queue(dead)
    async with Queue[object, object](dead, storage) as letters, Ops(storage) as ops:
        await letters.add("letter")
        [summary] = [each for each in (await ops.overview()).queues if each.name == dead]
        assert summary.is_dead_letter
        assert judge([replace(summary, oldest_waiting_seconds=3600.0)]) == ("ok", ())
        assert judge([replace(summary, oldest_waiting_seconds=3600.0, is_dead_letter=False)])[0] == "stopped"


async def test_a_queue_whose_jobs_are_revoked_does_not_fail(storage: Storage, queue: AnyQueue) -> None:
    for job in await queue.add_bulk([("n", number) for number in range(2 * FEW_FAILURES)]):
        await job.revoke()
    async with Ops(storage) as ops:
        [summary] = await ops.queues([queue.name])
    assert summary.counts["failed"] == 2 * FEW_FAILURES
    assert (summary.failed_last_hour, judge([summary])) == (0, ("ok", ()))


async def test_a_pause_is_shown_with_its_author_its_note_and_its_end(storage: Storage, queue: AnyQueue) -> None:
    await queue.connect()
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    async with Ops(storage, actor=Actor("http", "ada")) as ops:
        await ops.pause(queue.name, note="the provider is down", until=until)
        [summary] = await ops.queues([queue.name])
        assert summary.paused is not None
        assert (summary.paused.by, summary.paused.note, summary.paused.until) == ("ada", "the provider is down", until)
        await ops.resume(queue.name)
        [summary] = await ops.queues([queue.name])
        assert summary.paused is None


async def test_the_overview_has_the_newest_failure_groups(storage: Storage, queue: AnyQueue) -> None:
    async def fail(job: Job[Any, Any]) -> None:
        raise ValueError(job.name)

    async with Queue[Any, Any](f"{queue.name}-2", storage) as second, Ops(storage) as ops:
        assert (await ops.overview()).failures == ()
        for each, name in ((queue, "first"), (second, "second")):
            job = await each.add(name)
            async with worker_of(each, fail):
                await ended(job)
        found = (await ops.overview()).failures
        assert [(group.queue, group.name, group.error_type) for group in found] == [
            (second.name, "second", "ValueError"),
            (queue.name, "first", "ValueError"),
        ]
