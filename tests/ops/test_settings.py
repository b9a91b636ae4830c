"""What an operator sets holds over the code, and says who has set it, when and why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from glidemq_async import JobOptions, KeepJobs, QueueFull, RateLimit, TokenBucket
from glidemq_async.functions.settings import Author
from glidemq_async.ops import Actor, NoSuchHold, Ops, Setting, WrongTicket
from glidemq_async.ops.queue_rows import Pause
from glidemq_async.queues.limits import change_limits
from glidemq_async.queues.retention import hold_retention
from tests.support.clocked_queue import Timed
from tests.support.helpers import AnyQueue, echo, ended, idle, soon, worker_of

CODE = Author("code", "worker-1")


@pytest.fixture
async def ops(queue: AnyQueue) -> AsyncIterator[Ops]:
    """An operations core for Ada. The queue exists."""
    await queue.connect()
    async with Ops(queue.storage, actor=Actor("http", "ada")) as opened:
        yield opened


async def named(ops: Ops, queue: AnyQueue, name: str) -> Setting:
    """Return a setting of a queue."""
    return next(one for one in await ops.settings(queue.name) if one.name == name)


async def test_a_limit_of_an_operator_survives_the_declaration_of_a_deploy(ops: Ops, queue: AnyQueue) -> None:
    await change_limits(queue, CODE, concurrency=5, rate_limit=RateLimit(10, 60))
    assert await named(ops, queue, "concurrency") == Setting(
        "concurrency", None, "5", "5", "code", "worker-1", (await named(ops, queue, "concurrency")).at
    )
    await ops.set_limits(queue.name, concurrency=2, note="the provider is slow")
    await change_limits(queue, CODE, concurrency=8)
    assert await queue.get_global_concurrency() == 2
    found = await named(ops, queue, "concurrency")
    assert (found.value, found.declared, found.origin, found.who) == ("2", "8", "operator", "ada")
    assert found.note == "the provider is slow"
    assert found.at is not None
    assert (await named(ops, queue, "rate")).value == "10 per 60 s"
    await ops.release_hold(queue.name, "concurrency")
    assert await queue.get_global_concurrency() == 8
    with pytest.raises(NoSuchHold, match="no operator holds the setting 'concurrency'"):
        await ops.release_hold(queue.name, "concurrency")
    lines = (await ops.audit.read()).lines
    assert [(line.action, line.result[:2]) for line in lines] == [
        ("release hold", "No"),
        ("release hold", "ok"),
        ("set limits", "ok"),
    ]


async def test_a_direct_call_holds_over_a_declaration_too(ops: Ops, queue: AnyQueue) -> None:
    await queue.set_global_concurrency(3)
    assert (await named(ops, queue, "concurrency")).origin == "none"
    await change_limits(queue, CODE, concurrency=None)
    assert await queue.get_global_concurrency() == 3
    await change_limits(queue, CODE, concurrency=5)
    await queue.set_global_concurrency(3)
    await change_limits(queue, CODE, concurrency=5)
    found = await named(ops, queue, "concurrency")
    assert (found.value, found.origin, found.who) == ("3", "operator", "python")


async def test_limits_of_keys_are_held_by_key(ops: Ops, queue: AnyQueue) -> None:
    await ops.set_key_limits(queue.name, "k", token_bucket=TokenBucket(5, 0.5))
    await ops.set_key_limits(queue.name, None, concurrency=2)
    found = {(one.name, one.key): one.value for one in await ops.settings(queue.name) if one.origin == "operator"}
    assert found == {("bucket", "k"): "5 tokens, 0.5 per s", ("concurrency", ""): "2"}
    await ops.release_hold(queue.name, "bucket", key="k")
    assert (await queue.get_key_limits("k")).token_bucket is None


async def test_a_pause_has_a_note_and_an_author(ops: Ops, queue: AnyQueue) -> None:
    job = await queue.add("job")
    await ops.pause(queue.name, note="migration")
    assert await queue.is_paused()
    found = (await ops.explain(queue.name, job.id)).gates[0]
    assert (found.kind, found.by) == ("paused", "ada")
    assert found.text.endswith("(migration)")
    assert (await named(ops, queue, "paused")).note == "migration"
    await ops.release_hold(queue.name, "paused")
    assert not await queue.is_paused()
    assert (await named(ops, queue, "paused")).value is None


async def test_a_pause_ends_by_itself_and_wakes_idle_workers(queue: AnyQueue) -> None:
    async with worker_of(queue, echo) as worker:
        await idle(worker)
        end = datetime.now(UTC) + timedelta(seconds=1.5)
        await queue.pause(until=end)
        job = await queue.add("job")
        await asyncio.sleep(0.1)
        # A host may pause now and then.
        assert await job.get_state() == "waiting" or datetime.now(UTC) >= end
        await soon(ended(job))
    assert not await queue.is_paused()


async def test_a_pause_until_an_instant_holds_exactly_until_then(timed: Timed) -> None:
    now = datetime.now(UTC)
    await timed.queue.add("job")
    await timed.queue.pause(until=now + timedelta(hours=1))
    await timed.clock.advance(3_500_000)
    assert await timed.queue.is_paused()
    assert await timed.names() == []
    await timed.clock.advance(200_000)
    assert not await timed.queue.is_paused()
    assert await timed.run() == ["job"]


async def test_a_held_retention_applies_instead_of_the_options_of_jobs(ops: Ops, queue: AnyQueue) -> None:
    async def run(count: int, **options: Any) -> int:
        # Nobody waits for a result, because the record of an awaited job is kept longer.
        await queue.add_bulk([("job", None, JobOptions(**options))] * count)
        await worker_of(queue, echo).run(until_empty=True)
        return (await queue.get_job_counts())["completed"]

    assert await run(5) == 5
    await ops.set_retention(queue.name, completed=2, failed=KeepJobs(age=60), note="the disk is full")
    assert await run(3) == 2
    assert await run(3, keep_completed=100) == 2
    assert await run(1, keep_completed=False) == 2
    assert await run(3, priority=1, keep_completed=False) == 2
    assert await run(1, result_ttl=60) == 3
    kept = await named(ops, queue, "keep_completed")
    assert (kept.value, kept.origin, kept.who, kept.note) == ("2 jobs", "operator", "ada", "the disk is full")
    assert (await named(ops, queue, "keep_failed")).value == "60 s"
    await ops.set_retention(queue.name, completed=True)
    assert (await named(ops, queue, "keep_completed")).value == "all jobs"
    assert await run(3, keep_completed=False) == 6
    assert await run(2, priority=1, keep_completed=False) == 8
    await ops.release_hold(queue.name, "keep_completed")
    assert (await queue.get_job_counts())["completed"] == 8
    assert await run(1, keep_completed=1) == 2
    with pytest.raises(NoSuchHold):
        await ops.release_hold(queue.name, "keep_completed")
    with pytest.raises(TypeError, match="at least one of completed= and failed="):
        await ops.set_retention(queue.name)


async def test_a_released_retention_stays_until_a_job_ends(timed: Timed) -> None:
    by, day = Author("operator", "ada"), 86_400_000
    await hold_retention(timed.queue, by, {"keep_completed": KeepJobs()})
    await timed.queue.add("job")
    assert await timed.run() == ["job"]
    await hold_retention(timed.queue, by, {"keep_completed": None})
    await timed.clock.advance(2 * day)
    await timed.fake_worker.sweep()
    assert (await timed.queue.get_job_counts())["completed"] == 1
    await timed.queue.add("job")
    assert await timed.run() == ["job"]
    await timed.fake_worker.sweep()
    assert (await timed.queue.get_job_counts())["completed"] == 1


async def test_a_paused_schedule_says_who_has_paused_it_until_it_is_released(ops: Ops, queue: AnyQueue) -> None:
    await queue.upsert_job_scheduler("night", every=3600)
    await queue.upsert_job_scheduler("day", every=3600)
    assert await ops.pause_schedule(queue.name, "night", note="double bookings")
    assert await queue.pause_job_scheduler("night")
    await queue.upsert_job_scheduler("night", every=7200)
    found = await named(ops, queue, "schedule")
    assert (found.key, found.value, found.who, found.note) == ("night", "paused", "ada", "double bookings")
    rows = {row.id: row.paused for row in await ops.schedules([queue.name])}
    assert rows == {"night": Pause("double bookings", "ada"), "day": None}
    await ops.release_hold(queue.name, "schedule", key="night")
    scheduler = await queue.get_job_scheduler("night")
    assert scheduler is not None
    assert not scheduler.is_paused
    assert "schedule" not in {one.name for one in await ops.settings(queue.name)}
    assert await ops.pause_schedule(queue.name, "night")
    assert await ops.remove_schedule(queue.name, "night")
    assert [one.name for one in await ops.settings(queue.name) if one.origin != "none"] == []


async def test_a_full_queue_refuses_adds(ops: Ops, queue: AnyQueue) -> None:
    await queue.set_max_waiting(2)
    assert await queue.get_max_waiting() == 2
    await queue.add("job")
    await queue.add("job", key="k")
    for add in (queue.add("job"), queue.add("job", key="k"), queue.add("job", delay=60)):
        with pytest.raises(QueueFull, match="2 jobs wait, and the limit is 2"):
            await add
    await queue.set_max_waiting(None)
    await queue.add("job")
    await queue.drain()


async def test_jobs_of_every_kind_count_as_waiting(timed: Timed) -> None:
    queue, worker = timed.queue, timed.fake_worker
    await queue.set_max_waiting(1)
    kinds: list[dict[str, Any]] = [{}, {"priority": 1}, {"lifo": True}, {"key": "k"}]
    for options in kinds:
        await queue.add("job", **options)
        with pytest.raises(QueueFull):
            await queue.add("job")
        (lease,) = await worker.claim(1)
        await worker.settle(lease, "b")
        with pytest.raises(QueueFull):
            await queue.add("job")
        assert await timed.run() == ["job"]


async def test_obliterate_needs_the_ticket_of_a_preview(ops: Ops, queue: AnyQueue) -> None:
    await queue.add("job")
    preview = await ops.preview_obliterate(queue.name)
    assert (preview.count, preview.counts["waiting"]) == (1, 1)
    with pytest.raises(WrongTicket, match="is not a ticket"):
        await ops.obliterate(queue.name, "1-x")
    await queue.add_bulk([("job", None)] * 150)
    with pytest.raises(WrongTicket, match="has 151 jobs"):
        await ops.obliterate(queue.name, preview.ticket)
    assert await ops.obliterate(queue.name, (await ops.preview_obliterate(queue.name)).ticket) == 151


async def test_each_change_of_a_queue_writes_a_line(ops: Ops, queue: AnyQueue) -> None:
    await queue.upsert_job_scheduler("night", every=3600)
    await ops.pause_key(queue.name, "k", 60)
    await ops.resume_key(queue.name, "k")
    assert await ops.pause_schedule(queue.name, "night")
    assert await ops.resume_schedule(queue.name, "night")
    await ops.fire_schedule(queue.name, "night", reason="the night run failed")
    assert await ops.drain(queue.name) == 1
    assert await ops.clean(queue.name) == []
    assert await ops.remove_schedule(queue.name, "night")
    await ops.pause(queue.name)
    await ops.resume(queue.name)
    lines = (await ops.audit.read()).lines
    assert [line.action for line in reversed(lines)] == [
        "pause key",
        "resume key",
        "pause schedule",
        "resume schedule",
        "fire schedule",
        "drain",
        "clean",
        "remove schedule",
        "pause",
        "resume",
    ]
    assert lines[5].reason == "the night run failed"
