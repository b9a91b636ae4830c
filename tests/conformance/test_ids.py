"""Ids: generated ids never collide, and a custom id makes a repeated add harmless."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import pytest

from glidemq_async import GlideMQ, JobFailed, Queue
from glidemq_async.options.ids import GeneratedIds
from glidemq_async.storage import Storage
from tests.support.helpers import AnyJob, AnyQueue, Gate, echo, ended, worker_of


@pytest.mark.everywhere
async def test_a_second_add_with_an_id_is_a_duplicate(queue: AnyQueue) -> None:
    first = await queue.add("n", "first", job_id="order-7")
    second = await queue.add("other", "second", job_id="order-7", delay=5)
    assert (first.id, first.outcome) == ("order-7", "added")
    assert (second.id, second.outcome, second.name, second.data, second.state) == (
        "order-7", "duplicate", "n", "first", "waiting",
    )  # fmt: skip
    assert await queue.count() == 1


@pytest.mark.everywhere
async def test_a_repeated_add_of_a_completed_job_returns_its_result(queue: AnyQueue) -> None:
    job = await queue.add("n", "first", job_id="a")
    async with worker_of(queue, echo):
        await job.result(10)
        again = await queue.add("n", "second", job_id="a")
        assert (again.outcome, again.state, again.return_value) == ("completed", "completed", "first")
        assert await again.result(10) == "first"
        assert await queue.add_and_wait("n", "third", job_id="a", wait_timeout=10) == "first"


async def test_a_repeated_add_of_an_active_or_failed_job_is_a_duplicate(queue: AnyQueue) -> None:
    gate = Gate()

    async def fail(job: AnyJob) -> None:
        await gate(job)
        raise ValueError("no")

    async with worker_of(queue, fail):
        job = await queue.add("n", job_id="a")
        await gate.running()
        active = await queue.add("n", job_id="a")
        assert (active.outcome, active.state) == ("duplicate", "active")
        gate.release()
        await ended(job)
        failed = await queue.add("n", job_id="a")
        assert (failed.outcome, failed.state, failed.failed_reason) == ("duplicate", "failed", "ValueError: no")
        with pytest.raises(JobFailed, match="no"):
            await failed.result(10)


async def test_a_removed_id_is_free(queue: AnyQueue) -> None:
    await (await queue.add("n", 1, job_id="a")).remove()
    again = await queue.add("n", 2, job_id="a")
    assert (again.outcome, again.data) == ("added", 2)


async def test_single_adds_skip_a_number_that_is_a_custom_id(queue: AnyQueue) -> None:
    first = await queue.add("n")
    taken = str(int(first.id) + 3)  # the add with this id uses a number too
    await queue.add("n", job_id=taken)
    ids = [(await queue.add("n")).id for _ in range(3)]
    assert taken not in ids
    assert len(set(ids)) == 3


async def test_a_hundred_concurrent_adds_of_one_id_store_one_job(queue: AnyQueue) -> None:
    jobs = await asyncio.gather(*(queue.add("n", number, job_id="a") for number in range(100)))
    assert sorted(job.outcome for job in jobs) == ["added"] + ["duplicate"] * 99
    assert len({job.data for job in jobs if job.outcome == "duplicate"}) == 1
    assert await queue.count() == 1


@pytest.mark.parametrize("job_id", ["007", "9" * 20, "-1", "1.5", "a b", "t[1]*?\\^", "{x}:y", "ü😀", "x" * 512])
async def test_any_text_is_an_id(queue: AnyQueue, job_id: str) -> None:
    added = await queue.add("n", 1, job_id=job_id)
    plain = await queue.add("n", 2)
    assert added.id == job_id != plain.id
    async with worker_of(queue, echo):
        assert [await added.result(10), await plain.result(10)] == [1, 2]
    found = await queue.get_job(job_id)
    assert found is not None
    assert found.state == "completed"
    assert {job.id for job in await queue.get_jobs("completed")} == {plain.id, job_id}


async def test_generated_ids_grow(queue: AnyQueue) -> None:
    ids = [int((await queue.add("n")).id) for _ in range(3)]
    ids += [int(job.id) for job in await queue.add_bulk([("n", 1)] * 3)]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize(("ids", "version"), [("uuid4", 4), ("uuid7", 7)])
async def test_clients_can_generate_ids_that_cannot_be_guessed(
    storage: Storage, name: str, ids: GeneratedIds, version: int
) -> None:
    began = time.time_ns() // 1_000_000
    async with Queue[Any, Any](name, storage, ids=ids) as queue:
        jobs = [await queue.add("n", 1), *await queue.add_bulk([("n", number) for number in range(100)])]
        own = await queue.add("n", job_id="mine")
        async with worker_of(queue, echo, concurrency=20):
            assert await queue.add_and_wait("n", 7, wait_timeout=10) == 7
            assert await jobs[-1].result(10) == 99
    made = [uuid.UUID(job.id) for job in jobs]
    assert len(set(made)) == 101
    assert {one.version for one in made} == {version}
    assert {one.variant for one in made} == {uuid.RFC_4122}
    assert own.id == "mine"
    if version == 7:
        assert began <= made[0].int >> 80 <= made[-1].int >> 80 <= time.time_ns() // 1_000_000


def test_an_unknown_kind_of_ids_is_refused() -> None:
    unknown: Any = "uuid"
    for made in (Queue[Any, Any], GlideMQ):
        with pytest.raises(ValueError, match="ids must be one of 'sequence', 'uuid4', 'uuid7', got 'uuid'"):
            made("any", ids=unknown)


async def test_the_queues_of_an_app_use_its_kind_of_ids(storage: Storage) -> None:
    async with GlideMQ(storage, ids="uuid4") as mq:
        job = await mq.queue("any").add("n")
    assert uuid.UUID(job.id).version == 4
