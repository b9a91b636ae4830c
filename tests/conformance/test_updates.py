"""Log lines, progress and data that a handler or a user writes into a job, and the fencing of these updates."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glidemq_async import JobNotFound, LeaseLost, PayloadTooLarge, SerializationError
from tests.support.helpers import AnyJob, AnyQueue, Gate, Heard, ended, history, job_events, worker_of
from tests.support.stores import RunningStore


@pytest.mark.everywhere
async def test_a_handler_writes_log_progress_and_data(queue: AnyQueue) -> None:
    async def talk(job: AnyJob) -> Any:
        await job.log("one")
        await job.log("zwei ü\nand more")
        await job.update_progress(50)
        await job.update_progress({"done": 7})
        await job.update_data([*job.data, "seen"])
        assert (job.progress, job.data) == ({"done": 7}, [1, "seen"])
        return job.data

    async with worker_of(queue, talk):
        job = await queue.add("n", [1])
        assert await job.result(10) == [1, "seen"]
    await job.refresh()
    assert (job.progress, job.data) == ({"done": 7}, [1, "seen"])
    assert await queue.get_job_logs(job.id) == ["one", "zwei ü\nand more"]
    assert [kind for kind, _ in await job_events(queue, job.id)] == [
        "added", "active", "progress", "progress", "updated", "completed",
    ]  # fmt: skip


async def test_log_lines_are_read_by_position(queue: AnyQueue) -> None:
    job = await queue.add("n")
    for number in range(5):
        await job.log(str(number))
    assert await queue.get_job_logs(job.id, 1, 2) == ["1", "2"]
    assert await queue.get_job_logs(job.id, -2) == ["3", "4"]
    assert await queue.get_job_logs("nobody") == []


async def test_the_last_thousand_lines_are_kept(queue: AnyQueue) -> None:
    job = await queue.add("n")
    await asyncio.gather(*(job.log(f"line {number}") for number in range(1_050)))
    assert len(await queue.get_job_logs(job.id)) == 1_000


async def test_a_later_run_sees_the_updates_of_the_earlier_one(queue: AnyQueue) -> None:
    async def step(job: AnyJob) -> Any:
        if job.data == "start":
            await job.update_data("half way")
            await job.update_progress(0.5)
            raise ValueError("again")
        return [job.data, job.progress]

    async with worker_of(queue, step):
        assert await (await queue.add("n", "start", attempts=2)).result(10) == ["half way", 0.5]


@pytest.mark.everywhere
async def test_a_user_can_write_logs_progress_and_data(queue: AnyQueue) -> None:
    job = await queue.add("n", 1, delay=60)
    await job.log("by hand")
    await job.update_progress("waiting")
    await job.update_data(2)
    await job.refresh()
    assert (job.data, job.progress, await queue.get_job_logs(job.id)) == (2, "waiting", ["by hand"])


@pytest.mark.everywhere
async def test_a_run_that_lost_its_job_changes_nothing(queue: AnyQueue) -> None:
    """The job is removed and added again with its id while its first run continues."""
    first_run, added_again = asyncio.Event(), asyncio.Event()
    outcomes: list[Exception] = []

    async def stubborn(job: AnyJob) -> str:
        if job.data == "new":
            return "new"
        first_run.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await added_again.wait()
            for write in (job.log("late"), job.update_progress(1), job.update_data("late")):
                try:
                    await write
                except LeaseLost as error:
                    outcomes.append(error)
        return "old"

    async with worker_of(queue, stubborn, concurrency=2) as worker:
        lost = Heard(worker, "lease_lost")
        await queue.add("n", "old", job_id="a")
        await first_run.wait()
        await queue.remove("a")
        again = await queue.add("n", "new", job_id="a")
        assert again.outcome == "added"
        added_again.set()
        assert (await lost.next())[0].data == "old"
        assert await again.result(10) == "new"
    await again.refresh()
    assert (len(outcomes), again.data, again.return_value, again.progress) == (3, "new", "new", None)
    assert "lost the lease" in str(outcomes[0])
    assert await queue.get_job_logs("a") == []


async def test_writing_to_a_removed_job_raises(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n")
    await job.remove()
    for write in (job.log("x"), job.update_progress(1), job.update_data(1)):
        with pytest.raises(JobNotFound, match=job.id):
            await write
    assert not [key for key in await store.keys() if ":job:" in key or ":logs:" in key]


async def test_an_update_that_cannot_be_stored_is_refused_by_the_client(queue: AnyQueue) -> None:
    job = await queue.add("n", 1)
    for write in (job.update_progress({1}), job.update_data({1})):
        with pytest.raises(SerializationError):
            await write
    for write in (job.update_progress("x" * 2_000_000), job.update_data("x" * 2_000_000)):
        with pytest.raises(PayloadTooLarge):
            await write
    await job.refresh()
    assert (job.data, job.progress) == (1, None)


@pytest.mark.parametrize("line", [5, b"bytes", None])
async def test_a_log_line_must_be_text(queue: AnyQueue, line: Any) -> None:
    job = await queue.add("n")
    with pytest.raises(TypeError):
        await job.log(line)
    assert await queue.get_job_logs(job.id) == []


async def test_a_log_line_has_a_limit(queue: AnyQueue) -> None:
    job = await queue.add("n")
    with pytest.raises(PayloadTooLarge):
        await job.log("x" * 2_000_000)
    with pytest.raises(ValueError, match="surrogate"):
        await job.log("\ud800")


async def test_an_active_job_can_be_updated_from_outside(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate):
        job = await queue.add("n", 1)
        await gate.running()
        await job.update_progress(10)
        await job.update_data(2)
        gate.release()
        await ended(job)
    assert (job.progress, job.data, job.return_value) == (10, 2, 1)
    assert [event.kind for event in await history(queue)].count("progress") == 1
