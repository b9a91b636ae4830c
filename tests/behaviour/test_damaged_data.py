"""Stored data that a user damaged by hand: the job may fail, and other jobs are not affected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import pytest

from glidemq_async import Deduplication, JobFailed, JobOptions
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import PATIENCE, AnyJob, AnyQueue, Gate, Heard, echo, ended, until, worker_of
from tests.support.stores import RunningStore

Command: TypeAlias = tuple[str | bytes, ...]
Damage: TypeAlias = Callable[[str], list[Command]]

TRUNCATED: Damage = lambda key: [("HSET", key, "opts", b"\x81\xa1l")]  # noqa: E731
UNREADABLE: Damage = lambda key: [("HSET", key, "opts", b"\xff\xff")]  # noqa: E731
NO_DATA: Damage = lambda key: [("HDEL", key, "data")]  # noqa: E731
NO_TEXT: Damage = lambda key: [("HSET", key, "name", b"\xff\xfe")]  # noqa: E731
OTHER_TYPE: Damage = lambda key: [("DEL", key), ("SET", key, "x")]  # noqa: E731


def damageable(number: int) -> JobOptions:
    """Return options that a claim has to read from a record: a plain job has none."""
    return JobOptions(attempts=2, job_id=f"own-{number}")


damages = pytest.mark.parametrize(
    "damage",
    [TRUNCATED, UNREADABLE, NO_DATA, NO_TEXT, OTHER_TYPE],
    ids=["truncated options", "unreadable options", "no data", "a name that is no text", "another type"],
)


def record_key(queue: AnyQueue, job_id: str) -> str:
    """Return the store key of a job's record."""
    return f"glide:{{{queue.name}}}:job:{job_id}"


async def apply(store: RunningStore, commands: list[Command]) -> None:
    """Damage some data."""
    for command in commands:
        await store.ask(*command)


async def how_it_ended(queue: AnyQueue, store: RunningStore, job_id: str) -> str | None:
    """Return the state and reason of a damaged job, or None when it is gone. Reads without the library, which may
    refuse it.
    """
    key = record_key(queue, job_id)
    if await store.ask("TYPE", key) != b"hash":
        return None
    state, reason = [await store.ask("HGET", key, field) for field in ("place", "reason")]
    assert isinstance(state, bytes), state
    return f"{state.decode().partition(' ')[0]}: {reason.decode() if isinstance(reason, bytes) else None}"


async def check_the_rest(queue: AnyQueue, store: RunningStore, job_id: str, *, runs: bool) -> None:
    """Check that a damaged job ended or was dropped, remove its data, and check that all other data is sound.

    runs: the damage does not prevent a run.
    """
    found = await how_it_ended(queue, store, job_id)
    assert found in ({"completed: None"} if runs else {None, "failed: malformed"})
    if found is None:
        await store.ask("DEL", record_key(queue, job_id))
    else:
        assert await queue.remove(job_id)
    assert (await queue.get_job_counts())["active"] == 0
    assert await queue.check() == []


@damages
async def test_jobs_next_to_a_damaged_record_run(queue: AnyQueue, store: RunningStore, damage: Damage) -> None:
    await queue.pause()
    jobs = await queue.add_bulk([("n", number, damageable(number)) for number in range(6)])
    bad = jobs.pop(2)
    await apply(store, damage(record_key(queue, bad.id)))
    async with worker_of(queue, echo, concurrency=6, lock_duration=1) as worker:
        await queue.resume()
        assert [await job.result(5) for job in jobs] == [0, 1, 3, 4, 5]
        assert await queue.add_and_wait("n", "later", wait_timeout=5) == "later"
        await until(lambda: worker.running == 0)
        await until_none_is_active(queue)
    await check_the_rest(queue, store, bad.id, runs=damage is NO_TEXT)


@damages
async def test_a_damaged_record_does_not_keep_the_sweep_from_other_jobs(
    queue: AnyQueue, store: RunningStore, damage: Damage
) -> None:
    await queue.add_bulk([("n", number, damageable(number)) for number in range(4)])
    gone, sweeper = FakeWorker(queue, store), FakeWorker(queue, store)
    leases = await gone.claim(4, lock_ms=1000)
    bad = leases[1]
    await apply(store, damage(record_key(queue, bad.id)))
    await gone.vanish(*leases)
    recovered = await sweeper.sweep()
    healthy = {lease.id for lease in leases} - {bad.id}
    assert healthy <= set(recovered)
    async with worker_of(queue, echo, concurrency=4, lock_duration=1):
        for job_id in healthy:
            job = await queue.get_job(job_id)
            assert job is not None
            assert await job.result(5) == job.data
        await until_none_is_active(queue)
    assert await sweeper.sweep() == []
    await check_the_rest(queue, store, bad.id, runs=damage is NO_TEXT)
    await gone.leave()


async def test_a_job_whose_name_is_not_text_can_be_read(queue: AnyQueue, store: RunningStore) -> None:
    jobs = await queue.add_bulk([("n", number, damageable(number)) for number in range(3)])
    await apply(store, NO_TEXT(record_key(queue, jobs[1].id)))
    found = await queue.get_jobs("waiting")
    assert [job.data for job in found] == [0, 1, 2]
    damaged = await queue.get_job(jobs[1].id)
    assert damaged is not None
    assert await damaged.get_state() == "waiting"


async def until_none_is_active(queue: AnyQueue) -> None:
    """Wait until nothing runs any more, in the worker or in the store."""
    async with asyncio.timeout(PATIENCE):
        while (await queue.get_job_counts())["active"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_jobs_of_a_destroyed_group_of_the_stream_end_once(queue: AnyQueue, store: RunningStore) -> None:
    jobs = await queue.add_bulk([("n", number) for number in range(4)])
    gate = Gate()
    async with worker_of(queue, gate, concurrency=2, lock_duration=1, max_stalled=9) as worker:
        completed, errors = Heard(worker, "completed"), Heard(worker, "error")
        for _ in range(2):
            await gate.running()
        await store.ask("XGROUP", "DESTROY", f"glide:{{{queue.name}}}:fifo", "workers")
        gate.release()
        ids = [(await completed.next())[0].id for _ in jobs]
        await until(lambda: worker.running == 0)
        await until_none_is_active(queue)
        assert sorted(ids) == sorted(job.id for job in jobs)
        assert (completed.count, errors.count) == (0, 0)
    assert (await queue.get_job_counts())["completed"] == 4


async def test_a_reason_that_is_not_text_can_be_read(queue: AnyQueue, store: RunningStore) -> None:
    async def fail(_job: AnyJob) -> None:
        raise ValueError("broken")

    async with worker_of(queue, fail):
        job = await ended(await queue.add("n"))
        await apply(store, [("HSET", record_key(queue, job.id), "reason", b"broken \xff")])
        await job.refresh()
        assert (job.state, job.failed_reason) == ("failed", "broken \N{REPLACEMENT CHARACTER}")
        with pytest.raises(JobFailed, match="broken"):
            await job.result(5)


@pytest.mark.parametrize(
    "options", [JobOptions(), JobOptions(job_id="own"), JobOptions(deduplication=Deduplication("d"))]
)
async def test_a_queue_whose_counter_of_ids_was_deleted_continues_behind_its_last_job(
    queue: AnyQueue, store: RunningStore, options: JobOptions
) -> None:
    earlier = [await queue.add("before", number) for number in range(3)]
    assert await store.ask("DEL", f"glide:{{{queue.name}}}:id") == 1
    added = await queue.add("after", 3, options)
    last = await queue.add("last", 4)
    assert int(last.id) > int(earlier[-1].id)
    done: list[object] = []

    async def note(job: AnyJob) -> None:
        done.append(job.id)

    async with worker_of(queue, note):
        await ended(last)
    assert done == [*(job.id for job in earlier), added.id, last.id]
    assert await queue.check() == []
