"""Adding many jobs: one result per input, in order. All inputs are checked before the first is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from glidemq_async import JobOptions, PayloadTooLarge, Queue, QueueFull, SerializationError, StorageUnavailable
from glidemq_async.functions.add import AddCalls, AddRequest
from glidemq_async.functions.grouped_adds import AddReply
from glidemq_async.queues.add_buffer import MAX_JOBS
from glidemq_async.storage import Storage, Wait
from tests.support.helpers import AnyQueue, echo, ended, worker_of


@pytest.mark.everywhere
async def test_one_job_per_input_in_order(queue: AnyQueue) -> None:
    jobs = await queue.add_bulk([("n", number) for number in range(1_201)])
    assert [job.data for job in jobs] == list(range(1_201))
    assert [job.outcome for job in jobs] == ["added"] * 1_201
    assert len({job.id for job in jobs}) == 1_201
    assert [job.id async for job in queue.iter_jobs("waiting")] == [job.id for job in jobs]


async def test_each_input_has_its_own_name_and_options(queue: AnyQueue) -> None:
    jobs = await queue.add_bulk(
        [("a", 1), ("b", 2, JobOptions(delay=60)), ("c", 3, JobOptions(attempts=5, job_id="mine"))]
    )
    assert [(job.name, job.state) for job in jobs] == [("a", "waiting"), ("b", "delayed"), ("c", "waiting")]
    assert jobs[2].id == "mine"
    stored = await queue.get_job("mine")
    assert stored is not None
    assert stored.options.attempts == 5


async def test_a_failure_lists_the_stored_inputs(queue: AnyQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    some, lost = AddCalls.some, list[str]()

    async def break_off(self: AddCalls, jobs: Sequence[AddRequest], wait: Wait) -> AddReply:
        first = int(jobs[0].id.removeprefix("j"))
        if first >= 2 * MAX_JOBS:
            raise QueueFull("the server's memory is full")
        reply = await some(self, jobs, wait)
        if first >= MAX_JOBS:
            lost.extend(reply.ids)
            raise StorageUnavailable("the answer was lost")
        return reply

    monkeypatch.setattr(AddCalls, "some", break_off)
    with pytest.raises(StorageUnavailable, match="the answer was lost") as caught:
        await queue.add_bulk([("n", number, JobOptions(job_id=f"j{number}")) for number in range(2 * MAX_JOBS + 101)])
    outcome = caught.value.bulk
    assert outcome is not None
    assert outcome.stored == {number: f"j{number}" for number in range(MAX_JOBS)}
    assert outcome.unknown == tuple(range(MAX_JOBS, 2 * MAX_JOBS))
    assert outcome.refused == tuple(range(2 * MAX_JOBS, 2 * MAX_JOBS + 101))
    assert caught.value.__notes__ == ["add_bulk: 250 inputs stored, 101 not stored, 250 unknown"]
    assert await queue.count() == MAX_JOBS + len(lost)
    with pytest.raises(TypeError) as checked:
        await queue.add_bulk([("n", 1, {"delya": 3})])  # type: ignore[list-item] # pyright: ignore
    assert not hasattr(checked.value, "bulk")


async def test_an_empty_bulk_adds_nothing(queue: AnyQueue) -> None:
    assert await queue.add_bulk([]) == []


async def test_a_generator_is_accepted(queue: AnyQueue) -> None:
    assert len(await queue.add_bulk(("n", number) for number in range(3))) == 3


async def test_existing_ids_are_reported_per_input(queue: AnyQueue) -> None:
    await queue.add("old", "first", job_id="waits")
    await queue.add("old", "first", job_id="done", delay=60)
    async with worker_of(queue, echo):
        done = await queue.get_job("done")
        assert done is not None
        await done.promote()
        await ended(done)
    again = JobOptions(job_id="again")
    await queue.add("old", "first", job_id="waiting")
    jobs = await queue.add_bulk(
        [
            ("n", 0),
            ("n", 1, JobOptions(job_id="waiting")),
            ("n", 2, JobOptions(job_id="done")),
            ("n", 3, again),
            ("n", 4, again),
            ("n", 5),
        ]
    )
    assert [job.outcome for job in jobs] == ["added", "duplicate", "completed", "added", "duplicate", "added"]
    assert [job.data for job in jobs] == [0, "first", "first", 3, 3, 5]
    assert jobs[2].return_value == "first"


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (("n", {1, 2}), SerializationError),
        (("n", "x" * 1_000), PayloadTooLarge),
        (("", 1), ValueError),
        (("n", 1, {"delya": 3}), TypeError),
        (("n", 1, JobOptions(job_id="fine"), "more"), TypeError),
        (("n",), TypeError),
        ("no", TypeError),
        (7, TypeError),
    ],
)
@pytest.mark.only_on("memory")
async def test_one_bad_input_stores_nothing(storage: Storage, name: str, bad: Any, error: type[Exception]) -> None:
    async with Queue[Any, Any](name, storage, payload_limit=100) as queue:
        with pytest.raises(error):
            await queue.add_bulk([("n", 1), bad, ("n", 3)])
        assert await queue.count() == 0
