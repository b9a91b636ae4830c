"""Reading a queue: counts, lists in order, and single jobs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glidemq_async import JobNotFound, JobOptions
from glidemq_async.stored.record import State
from tests.support.helpers import AnyJob, AnyQueue, Gate, Heard, counts, echo, ended, worker_of


async def by_parity(job: AnyJob) -> Any:
    if job.data % 2:
        raise ValueError("odd")
    return job.data


@pytest.mark.everywhere
async def test_every_state_is_counted(queue: AnyQueue) -> None:
    assert await counts(queue) == {}
    async with worker_of(queue, by_parity):
        for number in range(5):
            await ended(await queue.add("n", number))
    gate = Gate()
    async with worker_of(queue, gate, concurrency=2):
        await queue.add_bulk([("n", number) for number in range(6)])
        await gate.running()
        await gate.running()
        await queue.add("n", delay=60)
        found = await counts(queue)
        assert found == {"waiting": 4, "active": 2, "delayed": 1, "completed": 3, "failed": 2}
        assert await queue.count() == 5
        for state in ("waiting", "active", "delayed", "completed", "failed"):
            assert len(await queue.get_jobs(state)) == found[state]
            assert {job.state async for job in queue.iter_jobs(state)} == {state}
        gate.release()


@pytest.mark.everywhere
async def test_a_part_of_a_long_list_can_be_read(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number) for number in range(1_100)])
    assert [job.data for job in await queue.get_jobs("waiting", 0, 2)] == [0, 1, 2]
    assert [job.data for job in await queue.get_jobs("waiting", 498, 503)] == [498, 499, 500, 501, 502, 503]
    assert [job.data for job in await queue.get_jobs("waiting", 1_098, 5_000)] == [1_098, 1_099]
    assert await queue.get_jobs("waiting", 2_000, 2_001) == []
    assert len(await queue.get_jobs("waiting")) == 100
    assert [job.data async for job in queue.iter_jobs("waiting")] == list(range(1_100))


async def test_long_lists_of_every_other_state_are_complete(queue: AnyQueue) -> None:
    # The default retention would keep 1,000 jobs, and up to 15 more until the next sweep.
    keep_all = JobOptions(keep_completed=True)
    jobs = await queue.add_bulk([("n", number, keep_all) for number in range(1_001)])
    gate = Gate()
    async with worker_of(queue, gate, concurrency=1_001):
        for _ in jobs:
            await gate.running()
        assert [job.data async for job in queue.iter_jobs("active")] == list(range(1_001))
        gate.release()
        for job in jobs:
            await job.result(10)
    assert {job.id async for job in queue.iter_jobs("completed")} == {job.id for job in jobs}
    for number in range(501):
        await queue.add("d", number, delay=1_000 + number)
    assert [job.data async for job in queue.iter_jobs("delayed")] == list(range(501))


async def test_ended_jobs_come_newest_first(queue: AnyQueue) -> None:
    async with worker_of(queue, by_parity) as worker:
        done, failed = Heard(worker, "completed"), Heard(worker, "failed")
        for number in range(6):
            await queue.add("n", number)
            await (failed if number % 2 else done).next()
            await queue.get_job_logs("pause")  # a round trip, so that two jobs rarely end in the same millisecond
    completed = await queue.get_jobs("completed")
    finished = [job.finished_at for job in completed]
    assert {job.data for job in completed} == {0, 2, 4}
    assert finished == sorted(finished, key=lambda at: at.timestamp() if at else 0, reverse=True)


@pytest.mark.everywhere
async def test_several_states_are_listed_in_both_directions(queue: AnyQueue) -> None:
    async with worker_of(queue, by_parity) as worker:
        ends = Heard(worker, "completed"), Heard(worker, "failed")
        for number in range(6):
            await queue.add("n", number)
            await ends[number % 2].next()
            await queue.get_job_logs("pause")  # a round trip, so that two jobs rarely end in the same millisecond
    for number in range(3):
        await queue.add("n", 10 + number, delay=60 + number)

    async def listed(*states: State, start: int = 0, end: int = 99, newest_first: bool | None = None) -> list[int]:
        return [job.data for job in await queue.get_jobs(states, start, end, newest_first=newest_first)]

    assert await listed("failed", "delayed") == [5, 3, 1, 10, 11, 12]
    assert await listed("failed", "delayed", newest_first=True) == [5, 3, 1, 12, 11, 10]
    assert await listed("failed", "delayed", newest_first=False) == [1, 3, 5, 10, 11, 12]
    assert await listed("delayed", "failed", "delayed", newest_first=True) == [12, 11, 10, 5, 3, 1]
    assert await listed("failed", "delayed", "completed", start=2, end=6, newest_first=False) == [5, 10, 11, 12, 0]
    assert [job.data async for job in queue.iter_jobs(["completed", "failed"], newest_first=False)] == [
        0,
        2,
        4,
        1,
        3,
        5,
    ]
    found = await queue.search_jobs(["delayed", "failed"], name="n", limit=4, newest_first=True)
    assert [job.data for job in found] == [12, 11, 10, 5]
    assert await asyncio.to_thread(lambda: [job.data for job in queue.sync.get_jobs(["failed"])]) == [5, 3, 1]


async def test_long_lists_are_read_from_their_end(queue: AnyQueue) -> None:
    gate = Gate()
    await queue.add_bulk([("n", number) for number in range(1_301)])
    for number in range(10):
        await queue.add("n", 1_301 + number, priority=1)
    async with worker_of(queue, gate, concurrency=700):
        for _ in range(700):
            await gate.running()
        for number in range(501):
            await queue.add("n", 2_000 + number, lifo=True)
        for state in ("active", "waiting"):
            forwards = [job.id async for job in queue.iter_jobs(state)]
            backwards = [job.id async for job in queue.iter_jobs(state, newest_first=True)]
            if state == "active":  # from two structures; plain jobs are listed first
                assert (len(forwards), set(forwards)) == (700, set(backwards))
            assert backwards == forwards[::-1]
            assert [job.id for job in await queue.get_jobs(state, 595, 604, newest_first=True)] == backwards[595:605]
        gate.release()


async def test_a_list_of_delayed_jobs_begins_at_any_position_with_one_call(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.add_bulk([("n", number, JobOptions(delay=60 + number)) for number in range(520)])
    calls: list[str] = []
    call = queue.storage.call

    async def recorded(function: str, *args: Any, **options: Any) -> object:
        calls.append(function)
        return await call(function, *args, **options)

    monkeypatch.setattr(queue.storage, "call", recorded)
    assert [job.data for job in await queue.get_jobs("delayed", 510, 513)] == [510, 511, 512, 513]
    assert [job.data for job in await queue.get_jobs("delayed", 515, 518, newest_first=True)] == [4, 3, 2, 1]
    assert calls.count("listJobs") == 2
    assert await queue.get_jobs("delayed", 520, 530) == []


async def test_payloads_can_be_left_out(queue: AnyQueue) -> None:
    await queue.add("n", {"large": "x" * 1_000})
    job = (await queue.get_jobs("waiting", with_data=False))[0]
    assert (job.name, job.data) == ("n", None)


async def test_released_jobs_are_listed_before_the_others(queue: AnyQueue) -> None:
    gate = Gate()
    await queue.add_bulk([("n", number) for number in range(4)])
    async with worker_of(queue, gate, concurrency=2, shutdown_timeout=0):
        await gate.running()
        await gate.running()
    assert [job.data for job in await queue.get_jobs("waiting")] == [0, 1, 2, 3]
    assert [job.data for job in await queue.get_jobs("waiting", 1, 2)] == [1, 2]


async def test_one_job_is_read_by_its_id(queue: AnyQueue) -> None:
    job = await queue.add("n", 1)
    found = await queue.get_job(job.id)
    assert found is not None
    assert (found.id, found.name, found.data, found.state) == (job.id, "n", 1, "waiting")
    assert await queue.get_job("nobody") is None


async def test_a_job_can_be_refreshed(queue: AnyQueue) -> None:
    job = await queue.add("n", 1)
    async with worker_of(queue, echo):
        await job.result(10)
    states = [job.state]
    await job.refresh()
    assert [*states, job.state] == ["waiting", "completed"]
    await job.remove()
    for look in (job.refresh(), job.get_state()):
        with pytest.raises(JobNotFound, match="refresh"):
            await look


@pytest.mark.only_on("memory")
async def test_bad_arguments_are_refused(queue: AnyQueue) -> None:
    bad: Any = queue
    for start, end in ((-1, 2), (3, 2), (0, -1)):
        with pytest.raises(ValueError, match="start"):
            await queue.get_jobs("waiting", start, end)
    with pytest.raises(
        ValueError,
        match=r"waiting, active, delayed, prioritized, key-waiting, rate-limited, .*completed, failed.*'done'",
    ):
        await bad.get_jobs("done")
    with pytest.raises(ValueError, match=r"at least one of waiting.*got \[\]"):
        await queue.get_jobs([])
    with pytest.raises(ValueError, match="got 'done'"):
        await bad.get_jobs(["waiting", "done"])
    with pytest.raises(ValueError, match="done"):
        async for _ in bad.iter_jobs("done"):
            pass
    with pytest.raises(TypeError, match="job_id"):
        await bad.get_job(7)
    with pytest.raises(ValueError, match="job_id"):
        await queue.get_job("")
    with pytest.raises(ValueError, match="job_id"):
        await queue.get_job_logs("a\nb")
