"""Adding one job: its stored form, and the job that a worker gets."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from glidemq_async import Backoff, JobOptions, JsonSerializer, KeepJobs, Queue, QueueClosed
from glidemq_async.storage import Storage
from tests.support.helpers import AnyJob, AnyQueue, echo, ended, soon, worker_of

PAYLOADS: list[Any] = [
    *(None, True, 0, -(2**63), 2**64 - 1, 1.5, "", "ü😀\x00", b"\x00\xff"),
    *([], {}, [1, [2, {"a": None}]], {"ключ": b"\x80"}, "x" * 200_000),
]


@pytest.mark.everywhere
async def test_an_added_job_is_stored_and_done(queue: AnyQueue) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    job = await queue.add("welcome", {"to": "ada@example.com"})
    assert (job.name, job.data, job.state, job.outcome) == ("welcome", {"to": "ada@example.com"}, "waiting", "added")
    assert job.attempts_made == job.stalled_count == job.fence == 0
    assert job.created_at is not None
    assert before < job.created_at < datetime.now(UTC) + timedelta(seconds=5)
    assert (job.processed_at, job.finished_at, job.return_value, job.failed_reason) == (None, None, None, None)
    assert await job.get_state() == "waiting"
    async with worker_of(queue, echo):
        assert await job.result(10) == {"to": "ada@example.com"}
    await job.refresh()
    assert (job.state, job.return_value, job.attempts_made, job.fence) == ("completed", job.data, 1, 1)
    assert job.processed_at is not None
    assert job.finished_at is not None
    assert job.created_at <= job.processed_at <= job.finished_at


async def test_data_is_none_unless_given(queue: AnyQueue) -> None:
    job = await queue.add("ping")
    stored = await queue.get_job(job.id)
    assert stored is not None
    assert job.data is None
    assert stored.data is None


async def test_every_payload_returns_unchanged(queue: AnyQueue) -> None:
    async with worker_of(queue, echo, concurrency=20):
        jobs = [await queue.add("echo", value) for value in PAYLOADS]
        assert [await job.result(10) for job in jobs] == PAYLOADS
    stored = [await queue.get_job(job.id) for job in jobs]
    assert [job and job.data for job in stored] == PAYLOADS


async def test_the_handler_sees_what_was_added(queue: AnyQueue) -> None:
    seen: list[AnyJob] = []

    async def look(job: AnyJob) -> None:
        seen.append(job)
        assert job.state == "active"
        assert job.processed_at is not None
        assert job.created_at is not None

    async with worker_of(queue, look):
        added = await queue.add(
            "look",
            [1],
            attempts=3,
            backoff=Backoff.fixed(1),
            timeout=5,
            headers={"trace": "ü"},
            keep_completed=KeepJobs(60, 5),
        )
        await added.result(10)
    job = seen[0]
    assert (job.id, job.name, job.data, job.queue) == (added.id, "look", [1], queue.name)
    assert (job.options.attempts, job.options.backoff, job.options.timeout) == (3, Backoff.fixed(1), 5)
    assert (dict(job.headers), job.options.keep_completed) == ({"trace": "ü"}, KeepJobs(60, 5))
    assert job.attempts_made == 1  # noted after its outcome was stored
    assert job.fence == 1


async def test_default_options_apply_unless_a_job_overrides_them(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage, default_options=JobOptions(attempts=4, headers={"a": "1"})) as queue:
        plain = await queue.add("job")
        own = await queue.add("job", attempts=2)
        bulk = await queue.add_bulk([("job", None), ("job", None, JobOptions(attempts=7))])
        stored = [await queue.get_job(job.id) for job in (plain, own, *bulk)]
    assert [job and job.options.attempts for job in stored] == [4, 2, 4, 7]
    assert [job and dict(job.headers) for job in stored] == [{"a": "1"}] * 4


@pytest.mark.everywhere
async def test_concurrent_adds_all_arrive(queue: AnyQueue) -> None:
    jobs = await asyncio.gather(*(queue.add("n", number) for number in range(1_200)))
    assert len({job.id for job in jobs}) == 1_200
    # Concurrent adds have no order: two calls in flight change it if the first one ends early.
    assert sorted([job.data async for job in queue.iter_jobs("waiting")]) == list(range(1_200))


async def test_a_cancelled_add_does_not_affect_others(queue: AnyQueue) -> None:
    tasks = [asyncio.create_task(queue.add("n", number)) for number in range(50)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[::2])
    stored = {job.data async for job in queue.iter_jobs("waiting")}
    assert stored >= set(range(1, 50, 2))


async def test_an_add_stores_one_job_even_when_large_ones_share_its_call(queue: AnyQueue) -> None:
    sizes = [900_000, 1, 900_000, 1, 900_000]
    jobs = await asyncio.gather(*(queue.add("n", b"x" * size) for size in sizes))
    stored = [await queue.get_job(job.id) for job in jobs]
    assert [job and len(job.data) for job in stored] == sizes


async def test_closing_sends_the_buffered_adds(storage: Storage, name: str) -> None:
    queue: AnyQueue = Queue(name, storage)
    await queue.connect()
    tasks = [asyncio.create_task(queue.add("n", number)) for number in range(700)]
    await asyncio.sleep(0)
    await queue.close()
    await queue.close()
    jobs = await soon(asyncio.gather(*tasks))
    async with Queue[Any, Any](name, storage) as again:
        assert (await again.get_job_counts())["waiting"] == len(jobs) == 700


async def test_a_closed_queue_refuses_adds(storage: Storage, name: str) -> None:
    queue: AnyQueue = Queue(name, storage)
    job = await queue.add("n")
    await queue.close()
    for call in (
        queue.add("n"),
        queue.add_bulk([("n", 1)]),
        queue.get_job(job.id),
        queue.pause(),
        queue.connect(),
        queue.check(),
    ):
        with pytest.raises(QueueClosed, match=name):
            await call
    async with Queue[Any, Any](name, storage) as again:
        assert await again.remove(job.id)


async def test_a_queue_opens_its_own_url(store: Any, storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, store.url) as queue:
        job = await queue.add("n", 1)
        async with worker_of(queue, echo):
            assert await job.result(10) == 1


async def test_two_prefixes_are_two_queues(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage, prefix="one") as one, Queue[Any, Any](name, storage, prefix="two") as two:
        await one.add("n")
        assert await one.count() == 1
        assert await two.count() == 0


async def test_another_serializer_can_be_used(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage, serializer=JsonSerializer()) as queue:
        job = await queue.add("n", {"1": [1, "ü"]})
        async with worker_of(queue, echo, serializer=JsonSerializer()):
            assert await job.result(10) == {"1": [1, "ü"]}
            nothing = await queue.add("n")
            assert await nothing.result(10) is None


async def test_many_queues_share_a_storage(storage: Storage, name: str) -> None:
    queues: list[AnyQueue] = [Queue(f"{name}-{number}", storage) for number in range(8)]
    jobs = await asyncio.gather(*(queue.add("n", number) for number, queue in enumerate(queues)))
    workers = [worker_of(queue, echo) for queue in queues]
    await asyncio.gather(*(worker.start() for worker in workers))
    assert await asyncio.gather(*(job.result(10) for job in jobs)) == list(range(8))
    await asyncio.gather(*(worker.close() for worker in workers), *(queue.close() for queue in queues))


async def test_jobs_run_in_the_order_of_their_adds(queue: AnyQueue) -> None:
    order: list[int] = []

    async def note(job: AnyJob) -> None:
        order.append(job.data)

    jobs = await queue.add_bulk([("n", number) for number in range(500)])
    async with worker_of(queue, note, concurrency=1):
        await ended(jobs[-1])
    assert order == list(range(500))


async def test_keywords_override_an_options_object(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage, default_options=JobOptions(attempts=2, priority=9)) as queue:
        given = JobOptions(priority=3, timeout=7)
        job = await queue.add("a", 1, given, timeout=8)
        assert (job.options.attempts, job.priority, job.options.timeout) == (2, 3, 8)
        plain = await queue.add("a", 1, given)
        assert (plain.options.attempts, plain.priority, plain.options.timeout) == (2, 3, 7)
        async with worker_of(queue, echo):
            assert await queue.add_and_wait("a", 2, JobOptions(job_id="mine"), wait_timeout=10) == 2
        assert (await queue.add("a", 3, options=JobOptions(job_id="mine"))).outcome == "completed"
        with pytest.raises(TypeError, match=r"options must be JobOptions, got \{'delay': 5\}"):
            await queue.add("a", 1, {"delay": 5})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(TypeError, match="options must be JobOptions, got 5"):
            await queue.add_bulk([("a", 1, 5)])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def test_the_sync_queue_takes_an_options_object(storage: Storage, name: str) -> None:
    with Queue[Any, Any](name, storage.url).sync as queue:
        assert queue.add("a", 1, JobOptions(priority=3)).priority == 3
