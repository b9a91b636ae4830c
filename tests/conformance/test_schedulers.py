"""Job schedulers: their fire times, their stored form, their jobs, and refusals."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from glidemq_async import (
    Backoff,
    Deduplication,
    JobOptions,
    KeepJobs,
    PayloadTooLarge,
    Queue,
    Schedule,
    SchedulerNotFound,
    SerializationError,
    Worker,
)
from glidemq_async.functions.callers import Functions
from glidemq_async.options.job_options import explicit
from glidemq_async.storage import Storage
from glidemq_async.storage.protocol import FunctionError
from tests.support.helpers import PATIENCE, AnyJob, AnyQueue, Gate, echo, ended, job_events, listening, soon, worker_of
from tests.support.schedulers import FAR, are_every, base_of, ended_schedule, fire_times, scheduler_of
from tests.support.stores import RunningStore

# -- firing -----------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_an_interval_adds_a_job_at_each_fire_time(queue: AnyQueue) -> None:
    async with worker_of(queue, echo):
        made = await queue.upsert_job_scheduler("s", every=0.1, limit=5, name="tick", data={"n": 1})
        assert made.next_at is not None
        over = await ended_schedule(queue)
    # Read when no job moves any more: a job that changes its state during the listing may be missed.
    found = await fire_times(queue)
    assert len(found) == over.fired == 5
    assert found[0] == round(made.next_at.timestamp() * 1000)
    assert are_every(found, 100)
    assert over.last_job_id == f"s@{found[-1]}"
    assert over.last_at is not None
    assert round(over.last_at.timestamp() * 1000) == found[-1]
    job = await queue.get_job(f"s@{found[0]}")
    assert job is not None
    assert (job.name, job.data) == ("tick", {"n": 1})
    assert job.created_at is not None
    assert made.next_at <= job.created_at < made.next_at + timedelta(seconds=PATIENCE)


async def test_cron_adds_a_job_at_each_fire_time(queue: AnyQueue) -> None:
    async with listening(queue) as events:
        await queue.upsert_job_scheduler("s", cron="* * * * * *", limit=2)
        first, second = await events.next(), await events.next()
    assert [event.kind for event in (first, second)] == ["added", "added"]
    found = await fire_times(queue)
    assert found[1] - found[0] == 1000
    assert found[0] % 1000 == 0


async def test_a_queue_without_a_worker_fires(queue: AnyQueue) -> None:
    await queue.upsert_job_scheduler("s", every=0.05, limit=3)
    await ended_schedule(queue)
    assert len(await fire_times(queue)) == 3


async def test_a_worker_fires_when_no_queue_is_open(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue:
        await queue.upsert_job_scheduler("s", every=0.7, limit=2)
    gate = Gate()
    async with Worker(name, gate, storage, handle_signals=False, shutdown_timeout=5):
        job = await gate.running()
        gate.release()
    assert job.id.startswith("s@")


async def test_a_process_that_finds_schedulers_fires_them(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue:
        await queue.upsert_job_scheduler("s", every=0.6, limit=2)
    async with Queue[Any, Any](name, storage) as queue:
        await ended_schedule(queue)
        assert len(await fire_times(queue)) == 2


async def test_a_worker_discovers_schedulers_in_its_sweep(
    queue: AnyQueue, storage: Storage, name: str, store: RunningStore
) -> None:
    """The process that created the scheduler dies before another one knows it."""
    gate = Gate()
    async with Worker(name, gate, storage, handle_signals=False, shutdown_timeout=5):
        functions = Functions(storage, base_of(queue))
        await queue.upsert_job_scheduler("s", every=3, limit=1)
        await store.ask("HDEL", f"{base_of(queue)}:schedule_roles", "first", "first_by")
        await functions.schedulers.take("dead first")
        await functions.schedulers.take("dead second")
        await queue.close()
        job = await gate.running()
        gate.release()
        await ended(job)
    assert job.created_at is not None
    # Before the next fire time, or within the time limit on a host that pauses.
    assert job.created_at.timestamp() * 1000 - int(job.id.rpartition("@")[2]) < PATIENCE * 1_000


async def test_jobs_fire_while_the_queue_is_paused(queue: AnyQueue) -> None:
    await queue.pause()
    await queue.upsert_job_scheduler("s", every=0.05, limit=2)
    await ended_schedule(queue)
    assert len(await fire_times(queue)) == 2


async def test_many_schedulers_fire_together(queue: AnyQueue) -> None:
    for n in range(60):
        await queue.upsert_job_scheduler(f"s{n:02}", every=0.5, limit=1)
    for n in range(60):
        await ended_schedule(queue, f"s{n:02}")
    assert len([job async for job in queue.iter_jobs("waiting")]) == 60
    assert [each.id for each in await queue.get_job_schedulers()] == [f"s{n:02}" for n in range(60)]


# -- upsert keeps the history -----------------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_an_upsert_does_not_resume_a_paused_scheduler(queue: AnyQueue) -> None:
    await queue.upsert_job_scheduler("s", every=3_600)
    assert await queue.pause_job_scheduler("s")
    made = await queue.upsert_job_scheduler("s", every=7_200)
    stored = await scheduler_of(queue)
    assert [(each.is_paused, each.next_at) for each in (made, stored)] == [(True, None)] * 2
    assert await queue.resume_job_scheduler("s")
    assert (await scheduler_of(queue)).next_at is not None


async def test_an_unchanged_upsert_changes_nothing(queue: AnyQueue) -> None:
    first = await queue.upsert_job_scheduler("s", every=3600, data=1)
    await asyncio.sleep(0.05)
    again = await queue.upsert_job_scheduler("s", every=3600, data=1)
    assert again == first
    other = await queue.upsert_job_scheduler("s", every=3600, data=2, missed="fire-all")
    assert (other.next_at, other.data) == (first.next_at, 2)


async def test_a_limit_counts_across_upserts(queue: AnyQueue) -> None:
    for _ in range(3):
        await queue.upsert_job_scheduler("s", every=0.05, limit=3)
        await ended_schedule(queue)
    assert len(await fire_times(queue)) == 3
    more = await queue.upsert_job_scheduler("s", every=0.05, limit=5)
    assert (more.fired, more.next_at is None) == (3, False)
    over = await ended_schedule(queue)
    assert over.fired == 5
    assert len(await fire_times(queue)) == 5


async def test_a_schedule_that_has_ended_stays_ended_after_an_upsert(queue: AnyQueue) -> None:
    start = datetime.now(tz=UTC) + timedelta(seconds=1)
    bounds: dict[str, Any] = {"start": start, "end": start + timedelta(seconds=0.25)}
    await queue.upsert_job_scheduler("s", every=0.1, **bounds)
    over = await ended_schedule(queue)
    assert over.fired == 3
    again = await queue.upsert_job_scheduler("s", every=0.1, **bounds)
    assert (again.next_at, again.fired) == (None, 3)
    assert [each.id for each in await queue.get_job_schedulers()] == ["s"]


async def test_another_schedule_keeps_the_history(queue: AnyQueue) -> None:
    await queue.upsert_job_scheduler("s", every=0.05, limit=2)
    over = await ended_schedule(queue)
    other = await queue.upsert_job_scheduler("s", **FAR)
    assert (other.fired, other.last_at, other.last_job_id) == (2, over.last_at, over.last_job_id)
    assert other.next_at is not None
    assert other.next_at > datetime.now(tz=UTC)
    assert await scheduler_of(queue) == other


# -- its jobs --------------------------------------------------------------------------------------------------------


async def test_every_option_of_the_template_reaches_the_job(queue: AnyQueue) -> None:
    options = JobOptions(
        attempts=4,
        backoff=Backoff.exponential(1, max=9),
        timeout=7,
        result_ttl=90,
        ttl=3600,
        lock_duration=12,
        delay=600,
        keep_completed=KeepJobs(age=60, count=5),
        keep_failed=False,
        headers={"trace": "abc"},
    )
    made = await queue.upsert_job_scheduler("s", every=0.05, limit=1, data=[1], **explicit(options))
    assert made.options == options
    assert (await scheduler_of(queue)).options == options
    over = await ended_schedule(queue)
    job = await queue.get_job(over.last_job_id or "")
    assert job is not None
    plain = await queue.add("s", [1], **explicit(options))
    assert job.options == (await queue.get_job(plain.id) or plain).options
    assert job.state == "delayed"
    assert await job.get_state() == "delayed"
    await job.promote()


@pytest.mark.parametrize(
    "options",
    [
        JobOptions(priority=7),
        JobOptions(lifo=True),
        JobOptions(key="tenant", cost=2.5),
        JobOptions(key="tenant", priority=3),
    ],
)
async def test_the_template_of_a_job_is_encoded_like_an_add(queue: AnyQueue, options: JobOptions) -> None:
    made = await queue.upsert_job_scheduler("s", every=0.05, limit=1, **explicit(options))
    assert made.options == (await scheduler_of(queue)).options == options
    over = await ended_schedule(queue)
    fired = await queue.get_job(over.last_job_id or "")
    added = await queue.get_job((await queue.add("n", **explicit(options))).id)
    assert fired is not None
    assert added is not None
    seen, wanted = ((job.state, job.key, job.priority, job.lifo, job.options) for job in (fired, added))
    assert seen == wanted


@pytest.mark.parametrize("mode", ["simple", "throttle", "debounce"])
async def test_the_jobs_of_a_scheduler_are_deduplicated(queue: AnyQueue, mode: Any) -> None:
    options = JobOptions(deduplication=Deduplication("d", ttl=60, mode=mode))
    made = await queue.upsert_job_scheduler("s", every=0.05, limit=1, **explicit(options))
    assert made.options == options
    over = await ended_schedule(queue)
    again = await queue.add("n", **explicit(options))
    if mode == "debounce":
        assert (again.outcome, await queue.get_job(over.last_job_id or "")) == ("added", None)
    else:
        assert (again.outcome, again.id) == ("duplicate", over.last_job_id)
        triggered = await queue.trigger_job_scheduler("s")
        assert (triggered.outcome, triggered.id) == ("duplicate", over.last_job_id)


async def test_the_time_to_live_of_a_template_counts_from_each_fire_time(queue: AnyQueue, store: RunningStore) -> None:
    await queue.upsert_job_scheduler("s", every=0.05, limit=2, ttl=60)
    over = await ended_schedule(queue)
    score = await store.ask("ZSCORE", f"{base_of(queue)}:expiry", over.last_job_id or "")
    assert over.last_at is not None
    assert isinstance(score, bytes)
    # The scheduler fires within the time limit, and the time to live of its job starts then.
    assert 0 <= float(score) - over.last_at.timestamp() * 1000 - 60_000 < PATIENCE * 1_000


async def test_the_options_of_the_queue_apply(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage, default_options=JobOptions(attempts=3)) as queue:
        made = await queue.upsert_job_scheduler("s", **FAR)
        assert made.options.attempts == 3
        made = await queue.upsert_job_scheduler("s", **FAR, attempts=2)
        assert made.options.attempts == 2


async def test_a_failed_run_is_retried_and_does_not_disturb_the_schedule(queue: AnyQueue) -> None:
    seen: list[str] = []

    async def fail_once(job: AnyJob) -> None:
        seen.append(job.id)
        if len(seen) == 1:
            raise ValueError("once")

    async with worker_of(queue, fail_once):
        await queue.upsert_job_scheduler("s", every=0.1, limit=3, attempts=2)
        over = await ended_schedule(queue)
        await ended(await queue.get_job(over.last_job_id or "") or pytest.fail("gone"))
        await ended(await queue.get_job(seen[0]) or pytest.fail("gone"))
    assert len(seen) == 4
    assert len(set(seen)) == 3


async def test_the_job_of_a_fire_time_is_not_added_again(queue: AnyQueue) -> None:
    start = datetime.now(tz=UTC) + timedelta(seconds=1.5)
    fire_time = -(-round(start.timestamp() * 1_000_000) // 1000)
    await queue.add("mine", job_id=f"s@{fire_time}")
    await queue.upsert_job_scheduler("s", every=3600, start=start, end=start + timedelta(seconds=1))
    over = await ended_schedule(queue)
    assert (over.fired, over.skipped, over.last_job_id) == (0, 1, None)
    assert ("skipped", f"{fire_time} duplicate") in await job_events(queue, "s")
    assert (await queue.get_job_counts())["waiting"] == 1


# -- overlap ----------------------------------------------------------------------------------------------------------


async def test_fire_times_are_skipped_while_the_last_job_runs(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, concurrency=5), listening(queue) as events:
        await queue.upsert_job_scheduler("s", every=0.1, overlap="skip")
        job = await gate.running()
        details: list[str] = []
        while len(details) < 3:
            event = await events.next()
            if event.kind == "skipped":
                assert event.job_id == "s"
                details.append(event.detail)
        assert all(detail.endswith(" overlap") for detail in details)
        assert (await scheduler_of(queue)).fired == 1
        gate.release()
        following = await gate.running()
        assert following.id != job.id
        found = await scheduler_of(queue)
        assert found.skipped >= 3
        await queue.remove_job_scheduler("s")


async def test_a_triggered_job_counts_for_the_overlap(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, concurrency=5):
        await queue.upsert_job_scheduler("s", every=3600, overlap="skip")
        job = await queue.trigger_job_scheduler("s")
        assert (await gate.running()).id == job.id
        async with listening(queue) as events:
            await queue.upsert_job_scheduler("s", every=0.1, overlap="skip")
            assert (await events.next()).kind == "skipped"
        assert await fire_times(queue) == []
        await queue.remove_job_scheduler("s")
        gate.release()


async def test_jobs_overlap_by_default(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, concurrency=5):
        await queue.upsert_job_scheduler("s", every=0.1, limit=3)
        assert len({(await gate.running()).id for _ in range(3)}) == 3
        gate.release()


# -- list, get, remove, trigger ---------------------------------------------------------------------------------------


async def test_a_scheduler_is_read_as_it_was_upserted(queue: AnyQueue) -> None:
    schedule = Schedule(cron="30 4 * * mon-fri", tz="Europe/Madrid", limit=9, missed="fire-all", catch_up=3)
    before = datetime.now(tz=UTC)
    made = await queue.upsert_job_scheduler("näme @ 1", schedule, name="n", data={"a": [1]}, attempts=2)
    assert await scheduler_of(queue, "näme @ 1") == made
    assert await queue.get_job_schedulers() == [made]
    assert (made.schedule, made.name, made.data, made.options) == (schedule, "n", {"a": [1]}, JobOptions(attempts=2))
    assert (made.fired, made.skipped, made.last_at, made.last_job_id) == (0, 0, None, None)
    assert made.next_at in (schedule.next_after(before), schedule.next_after(datetime.now(tz=UTC)))
    assert (await queue.upsert_job_scheduler("s", **FAR)).name == "s"


async def test_hundreds_of_schedulers_are_listed(queue: AnyQueue) -> None:
    ids = sorted(f"s{n}" for n in range(250))
    for at in range(0, 250, 50):
        await asyncio.gather(*(queue.upsert_job_scheduler(each, **FAR) for each in ids[at : at + 50]))
    assert [each.id for each in await queue.get_job_schedulers()] == ids


@pytest.mark.everywhere
async def test_removing_a_scheduler_leaves_no_key(queue: AnyQueue, store: RunningStore) -> None:
    await queue.upsert_job_scheduler("s", every=0.05)
    await queue.upsert_job_scheduler("t", **FAR)
    async with listening(queue) as events:
        await events.next()
    assert await queue.remove_job_scheduler("s")
    assert not await queue.remove_job_scheduler("s")
    assert await queue.remove_job_scheduler("t")
    assert await queue.get_job_scheduler("s") is None
    assert await queue.get_job_schedulers() == []
    await asyncio.sleep(0.15)
    assert not [key for key in await store.keys() if "schedule" in key]


async def test_a_removed_scheduler_does_not_fire(queue: AnyQueue) -> None:
    await queue.upsert_job_scheduler("s", every=0.05)
    async with listening(queue) as events:
        await events.next()
        await queue.remove_job_scheduler("s")
    before = await fire_times(queue)
    await asyncio.sleep(0.2)
    assert await fire_times(queue) == before


async def test_triggering_adds_a_job_and_keeps_the_fire_times(queue: AnyQueue) -> None:
    made = await queue.upsert_job_scheduler("s", every=3600, name="n", data=7, attempts=2)
    job = await queue.trigger_job_scheduler("s")
    assert (job.name, job.data, job.options.attempts, job.outcome) == ("n", 7, 2, "added")
    assert await scheduler_of(queue) == made
    async with worker_of(queue, echo):
        assert await job.result(10) == 7


@pytest.mark.parametrize("size", [10, 100_000])
async def test_a_repeated_trigger_adds_no_other_job(queue: AnyQueue, storage: Storage, size: int) -> None:
    await queue.upsert_job_scheduler("s", every=3600, name="n", data="x" * size)
    call = ["channel", "1", "s"]
    first, second = [await storage.call("triggerScheduler", base_of(queue), call) for _ in range(2)]
    assert first == second
    assert size < len(cast("list[bytes]", first)[4])
    assert await queue.count() == 1


@pytest.mark.parametrize("options", [JobOptions(), JobOptions(key="k"), JobOptions(attempts=2)])
async def test_a_repeated_trigger_returns_the_data_of_a_removed_scheduler(
    queue: AnyQueue, storage: Storage, options: JobOptions
) -> None:
    await queue.upsert_job_scheduler("s", every=3600, name="n", data="x" * 100_000, **explicit(options))
    call = ["channel", "1", "s"]
    first = await storage.call("triggerScheduler", base_of(queue), call)
    assert await queue.remove_job_scheduler("s")
    assert await storage.call("triggerScheduler", base_of(queue), call) == first


async def test_a_scheduler_that_has_ended_can_be_triggered(queue: AnyQueue) -> None:
    await queue.upsert_job_scheduler("s", every=0.05, limit=1, data=5)
    await ended_schedule(queue)
    job = await queue.trigger_job_scheduler("s")
    assert (job.data, (await scheduler_of(queue)).fired) == (5, 1)


async def test_an_unknown_scheduler_cannot_be_triggered(queue: AnyQueue) -> None:
    with pytest.raises(SchedulerNotFound, match=r"'nope'.*upsert_job_scheduler"):
        await queue.trigger_job_scheduler("nope")
    await queue.upsert_job_scheduler("nightly", **FAR)
    with pytest.raises(SchedulerNotFound, match="has no job scheduler 'nightli'; did you mean 'nightly'"):
        await queue.trigger_job_scheduler("nightli")


# -- refusals and damage ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({}, ValueError, "exactly one of cron and every"),
        ({"cron": "61 * * * *"}, ValueError, "minute must be"),
        ({"every": 1, "job_id": "x"}, ValueError, "job_id='x' is not allowed for a scheduler"),
        ({"every": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)}, ValueError, "at=.* is not allowed for a scheduler"),
        ({"every": 1, "attempts": 0}, ValueError, "attempts"),
        ({"every": 1, "tz": "UTC"}, ValueError, "tz='UTC' applies only to cron="),
        ({"tz": "UTC"}, ValueError, "exactly one of cron and every"),
        ({"every": 1, "catch_up": 3}, ValueError, "catch_up=3 applies only to missed='fire-all'"),
        ({"evry": 1}, TypeError, "unknown scheduler option 'evry'.*'every'"),
        ({"schedule": "0 0 * * *"}, TypeError, "schedule must be a Schedule"),
        ({"schedule": Schedule(every=1), "limit": 3}, ValueError, "limit cannot be combined with a Schedule"),
        ({"every": 1, "data": object()}, SerializationError, "cannot be encoded"),
        ({"every": 1, "data": "x" * 2_000_000}, PayloadTooLarge, "data"),
        ({"every": 1, "name": ""}, ValueError, "job name"),
    ],
)
async def test_bad_schedulers_are_refused_before_anything_is_sent(
    queue: AnyQueue, store: RunningStore, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        await queue.upsert_job_scheduler("s", **options)
    assert not [key for key in await store.keys() if "schedule" in key]


@pytest.mark.parametrize("bad", ["", "a\nb", "x" * 500, 5])
async def test_bad_ids_are_refused(queue: AnyQueue, bad: Any) -> None:
    for call in (
        queue.get_job_scheduler(bad),
        queue.remove_job_scheduler(bad),
        queue.trigger_job_scheduler(bad),
        queue.upsert_job_scheduler(bad, every=1),
    ):
        with pytest.raises((TypeError, ValueError), match="scheduler_id"):
            await call


async def test_the_jobs_of_a_scheduler_fit_the_mode_of_the_queue(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as free, Queue[Any, Any](name, storage, mode="keyed") as queue:
        with pytest.raises(ValueError, match="every job needs a key"):
            await queue.upsert_job_scheduler("s", every=1)
        with pytest.raises(FunctionError, match="no key"):
            await free.upsert_job_scheduler("s", every=1)
        await queue.upsert_job_scheduler("s", every=0.05, limit=1, key="k")
        await ended_schedule(queue)
        assert (await queue.get_job_counts())["key-waiting"] == 1


async def test_a_damaged_scheduler_does_not_stop_others(
    queue: AnyQueue, store: RunningStore, caplog: pytest.LogCaptureFixture
) -> None:
    base = base_of(queue)
    await queue.upsert_job_scheduler("bad", every=0.05)
    await queue.upsert_job_scheduler("worse", every=0.05)
    await store.ask("HSET", f"{base}:scheduler:bad", "spec", "rubbish")
    await store.ask("DEL", f"{base}:scheduler:worse")
    await store.ask("SET", f"{base}:scheduler:worse", "not a hash")
    await queue.upsert_job_scheduler("s", every=0.1, limit=3)
    await ended_schedule(queue)
    assert any("'bad'" in line and "cannot be fired" in line for line in caplog.messages)
    with pytest.raises(SerializationError):
        await queue.get_job_scheduler("bad")
    assert await queue.remove_job_scheduler("bad")
    assert await queue.remove_job_scheduler("worse")
    assert [each.id for each in await queue.get_job_schedulers()] == ["s"]


async def test_times_beyond_the_range_of_datetime_are_refused_before_anything_is_stored(queue: AnyQueue) -> None:
    await queue.upsert_job_scheduler("fine", **FAR)
    with pytest.raises(ValueError, match="every must be at most"):
        await queue.upsert_job_scheduler("far", every=10**12)
    with pytest.raises(ValueError, match="at most"):
        await queue.pause_key("k", 10**12)
    last = await queue.upsert_job_scheduler("last", every=86_400, start=datetime(9999, 12, 31, 12, tzinfo=UTC))
    assert last.next_at == datetime(9999, 12, 31, 12, tzinfo=UTC)
    assert last.schedule.next_after(datetime(9999, 12, 31, 12, tzinfo=UTC)) is None
    assert [each.id for each in await queue.get_job_schedulers()] == ["fine", "last"]


@pytest.mark.parametrize(
    ("field", "value"), [("last_slot", "9" * 15), ("fired", "many"), ("opts", "\xc1"), ("extra", "x"), ("wait", "soon")]
)
async def test_an_unreadable_scheduler_does_not_break_a_listing(
    queue: AnyQueue, store: RunningStore, caplog: pytest.LogCaptureFixture, field: str, value: str
) -> None:
    await queue.upsert_job_scheduler("fine", **FAR)
    await queue.upsert_job_scheduler("odd", **FAR)
    await store.ask("HSET", f"{base_of(queue)}:scheduler:odd", field, value.encode("latin-1"))
    assert [each.id for each in await queue.get_job_schedulers()] == ["fine"]
    with pytest.raises(SerializationError):
        await queue.get_job_scheduler("odd")
    assert any("'odd'" in line and "cannot be read" in line for line in caplog.messages)


async def test_the_integrity_check_finds_an_incomplete_scheduler(queue: AnyQueue, store: RunningStore) -> None:
    base = base_of(queue)
    await queue.upsert_job_scheduler("a", **FAR)
    await queue.upsert_job_scheduler("b", **FAR)
    assert await queue.check() == []
    await store.ask("DEL", f"{base}:scheduler:a")
    await store.ask("ZREM", f"{base}:schedules", "b")
    assert [(each.invariant, each.subject) for each in await queue.check()] == [("I12", "a"), ("I12", "b")]
    # Both can be recreated, and then the check finds nothing.
    await queue.upsert_job_scheduler("a", **FAR)
    await queue.upsert_job_scheduler("b", **FAR)


async def test_a_closed_queue_does_not_fire(storage: Storage, name: str, store: RunningStore) -> None:
    queue: AnyQueue = Queue(name, storage)
    await queue.upsert_job_scheduler("s", every=0.05)
    await queue.close()
    # An open queue would fire what it finds here.
    before = await store.ask("XLEN", f"{base_of(queue)}:fifo")
    await asyncio.sleep(0.2)
    assert await store.ask("XLEN", f"{base_of(queue)}:fifo") == before
    async with Queue[Any, Any](name, storage) as reader:
        assert await soon(reader.remove_job_scheduler("s"))
