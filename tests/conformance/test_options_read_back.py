"""The options of a job as they are read again: from the add, from the record, and in a handler."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from glidemq_async import Backoff, Deduplication, JobOptions, KeepJobs
from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.functions.callers import Functions
from glidemq_async.stored.names import QueueKeys
from tests.support.helpers import AnyJob, AnyQueue, worker_of

# A fixed time, because it is part of a test's id: all processes that share the tests must find the same ids.
LATER = datetime(2090, 1, 1, tzinfo=UTC)

EVERY_KIND = [
    JobOptions(delay=60, ttl=90),
    JobOptions(at=LATER, attempts=2),
    JobOptions(priority=7),
    JobOptions(priority=7, delay=5, attempts=3),
    JobOptions(lifo=True, timeout=3),
    JobOptions(key="k"),
    JobOptions(key="a key", cost=2.5, priority=3, headers={"a": "b"}),
    JobOptions(key="k", delay=60, cost=0.5),
    JobOptions(deduplication=Deduplication("d1")),
    JobOptions(deduplication=Deduplication("d2", 60, "throttle"), backoff=Backoff.exponential(1, max=9)),
    JobOptions(deduplication=Deduplication("d3", 60, "debounce")),
    JobOptions(deduplication=Deduplication("d4", mode="keep_last"), ttl=30),
    JobOptions(attempts=2, lock_duration=9, keep_completed=KeepJobs(5, 6), keep_failed=False, result_ttl=3),
    JobOptions(),
]


@pytest.mark.parametrize("options", EVERY_KIND, ids=repr)
async def test_every_option_comes_back_from_the_record(queue: AnyQueue, options: JobOptions) -> None:
    added = await queue.add("n", 1, options)
    assert added.options == options
    read = await queue.get_job(added.id)
    assert read is not None
    assert read.options == options
    assert (read.state, read.due_at) == (added.state, added.due_at)
    [listed] = await queue.get_jobs(added.state)
    assert (listed.options, listed.due_at) == (options, added.due_at)
    assert repr(read.options) == repr(options)


@pytest.mark.parametrize(
    "options",
    [
        JobOptions(delay=0.001, ttl=90, headers={"a": "b"}),
        JobOptions(ttl=90, durability="default", cost=2, key="k"),
        JobOptions(deduplication=Deduplication("d", 60)),
        JobOptions(priority=4, attempts=2),
        JobOptions(lifo=True),
        JobOptions(key="k", priority=4, result_ttl=30),
        JobOptions(),
    ],
    ids=repr,
)
async def test_every_option_is_known_in_a_handler(queue: AnyQueue, options: JobOptions) -> None:
    seen: asyncio.Future[JobOptions] = asyncio.get_running_loop().create_future()

    async def handler(job: AnyJob) -> None:
        seen.set_result(job.options)

    await queue.add("n", 1, options)
    async with worker_of(queue, handler), asyncio.timeout(10):
        assert await seen == options


async def test_an_id_is_an_option_of_the_add_only(queue: AnyQueue) -> None:
    added = await queue.add("n", 1, job_id="mine", attempts=2)
    assert (added.options.job_id, added.options.attempts) == ("mine", 2)
    await added.refresh()
    assert added.options == JobOptions(attempts=2)


async def test_a_changed_priority_is_the_option(queue: AnyQueue) -> None:
    job = await queue.add("n", 1, priority=3, attempts=2)
    await job.change_priority(9)
    assert job.options == JobOptions(priority=9, attempts=2)
    await job.change_priority(0)
    assert job.options == JobOptions(attempts=2)
    await job.refresh()
    assert (job.options, job.priority) == (JobOptions(attempts=2), 0)


async def test_the_due_time_of_a_delayed_job_can_be_read(queue: AnyQueue) -> None:
    job = await queue.add("n", 1, delay=60)
    assert job.created_at is not None
    assert job.due_at == job.created_at + timedelta(seconds=60)
    assert (await queue.add("n", 1, at=LATER)).due_at == LATER
    await job.change_delay(3600)
    await job.refresh()
    assert job.due_at is not None
    assert job.due_at > job.created_at + timedelta(seconds=3599)
    await job.promote()
    ready = await queue.get_job(job.id)
    assert ready is not None
    assert ready.due_at is None
    assert (await queue.add("n", 1)).due_at is None


async def test_the_due_time_of_the_next_attempt_can_be_read(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> None:
        raise ValueError("again")

    async with worker_of(queue, handler) as worker:
        put_off = asyncio.Event()
        worker.on("retrying", lambda *_: put_off.set())
        job = await queue.add("n", 1, attempts=2, backoff=60)
        async with asyncio.timeout(10):
            await put_off.wait()
    await job.refresh()
    assert job.state == "delayed"
    assert job.due_at is not None
    assert job.processed_at is not None
    assert job.due_at >= job.processed_at + timedelta(seconds=60)


async def test_a_job_that_follows_another_has_no_due_time(queue: AnyQueue) -> None:
    running, done = asyncio.Event(), asyncio.Event()

    async def handler(job: AnyJob) -> None:
        running.set()
        await done.wait()

    follows = Deduplication("d", mode="keep_last")
    async with worker_of(queue, handler), asyncio.timeout(10):
        await queue.add("n", 1, deduplication=follows)
        await running.wait()
        second = await queue.add("n", 2, deduplication=follows, delay=5)
        assert (second.state, second.due_at) == ("delayed", None)
        await second.refresh()
        assert (second.state, second.due_at) == ("delayed", None)
        done.set()


async def test_a_plain_job_stores_no_options(queue: AnyQueue) -> None:
    job = await queue.add("n", 1)
    [record] = await Functions(queue.storage, QueueKeys(DEFAULT_PREFIX, queue.name).base).reading.get_records([job.id])
    assert record.keys() == {b"name", b"data", b"place"}
