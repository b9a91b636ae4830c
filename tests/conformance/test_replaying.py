"""Replaying dead letters: under their ids where they failed, or back from the queue that they were moved to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgpack
import pytest

from glidemq_async import IncompatibleQueueError, JobOptions, Queue
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.options.stored_options import stored_form
from glidemq_async.storage import Storage
from tests.support.dead_letters import dead_letters_of, fail, hopeless, ids_of, run_all
from tests.support.helpers import AnyQueue, Gate, echo, history, job_events, soon, worker_of
from tests.support.recording_storage import Relay
from tests.support.stores import RunningStore


@pytest.fixture
async def dead(storage: Storage, name: str) -> AsyncIterator[AnyQueue]:
    """The named dead-letter queue of this test."""
    async with Queue[Any, Any](f"{name}-dead", storage) as opened:
        yield opened


# -- in the queue where it failed ------------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_a_replayed_job_restarts_under_its_id(queue: AnyQueue) -> None:
    job = await queue.add("n", 7, attempts=2)
    await run_all(queue, fail)
    assert await queue.replay_dead_letter_jobs() == 1
    await job.refresh()
    assert (job.state, job.attempts_made, job.failed_reason, job.failure_cause) == ("waiting", 0, None, None)
    await run_all(queue, echo)
    assert await job.result(5) == 7
    assert await queue.replay_dead_letter_jobs() == 0
    assert ("waiting", "replayed") in await job_events(queue, job.id)


async def test_a_replay_wakes_idle_workers(queue: AnyQueue) -> None:
    job = await queue.add("n", 7)
    await run_all(queue, fail)
    async with worker_of(queue, echo):
        await soon(queue.add_and_wait("n", 1))
        assert await queue.replay_dead_letter_jobs() == 1
        assert await job.result(5) == 7


async def test_a_replay_of_many_ends_even_if_all_fail_again(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number) for number in range(450)])
    await run_all(queue, fail, concurrency=100)
    async with worker_of(queue, fail, concurrency=100):
        assert await soon(queue.replay_dead_letter_jobs()) == 450


async def test_a_replay_takes_the_oldest_jobs_of_a_cause(queue: AnyQueue) -> None:
    exhausted = [await queue.add("n", number) for number in range(3)]
    await run_all(queue, fail)
    given_up = [await queue.add("n", number) for number in range(3)]
    await run_all(queue, hopeless)
    assert await queue.replay_dead_letter_jobs(2, cause="unrecoverable") == 2
    assert await ids_of(queue) == [given_up[2].id, *(job.id for job in reversed(exhausted))]
    assert await queue.replay_dead_letter_jobs(0) == 0
    assert await queue.replay_dead_letter_jobs(1) == 1
    assert await ids_of(queue, cause="retries_exhausted") == [exhausted[2].id, exhausted[1].id]


async def test_a_replay_by_cause_skips_many_jobs_of_other_causes(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number) for number in range(450)])
    await run_all(queue, fail, concurrency=100)
    await queue.add_bulk([("n", number) for number in range(250)])
    await run_all(queue, hopeless, concurrency=100)
    assert len(await queue.get_dead_letter_jobs(end=299, cause="unrecoverable")) == 250
    assert await queue.replay_dead_letter_jobs(cause="unrecoverable") == 250
    assert {job.failure_cause for job in await queue.get_dead_letter_jobs(end=999)} == {"retries_exhausted"}
    assert await queue.count() == 250


# -- back from a named queue ----------------------------------------------------------------------------------------


async def test_a_replayed_dead_letter_restarts_in_its_original_queue(queue: AnyQueue, dead: AnyQueue) -> None:
    job = await queue.add("n", 5, attempts=2)
    await run_all(queue, fail, dead_letter_queue=dead.name)
    assert await dead.replay_dead_letter_jobs() == 1
    await job.refresh()
    assert (job.state, job.attempts_made) == ("waiting", 0)
    assert (await dead.get_job_counts())["waiting"] == 0
    await run_all(queue, echo)
    assert await job.result(5) == 5
    assert (await queue.get_job_counts())["completed"] == 1


async def test_a_moved_job_is_added_again_when_its_record_is_gone(queue: AnyQueue, dead: AnyQueue) -> None:
    job = await queue.add("pay", 5, attempts=3, keep_failed=False, job_id="mine")
    await run_all(queue, hopeless, dead_letter_queue=dead.name)
    assert await queue.get_job("mine") is None
    assert await dead.replay_dead_letter_jobs() == 1
    again = await queue.get_job("mine")
    assert again is not None
    assert (again.name, again.data, again.options.attempts, again.state) == ("pay", 5, 3, "waiting")
    await run_all(queue, echo)
    assert await job.result(5) == 5
    assert await dead.count() == 0


async def test_a_moved_job_that_no_longer_fits_the_mode_stays(
    queue: AnyQueue, dead: AnyQueue, storage: Storage, name: str
) -> None:
    await queue.add("pay", 5, job_id="mine")
    await run_all(queue, hopeless, dead_letter_queue=dead.name)
    await queue.obliterate()
    async with Queue[Any, Any](name, storage, mode="keyed") as anew:
        with pytest.raises(IncompatibleQueueError, match="no key"):
            await dead.replay_dead_letter_jobs()
        assert await anew.count() == 0
    assert [dead_letter.job_id for dead_letter in await dead_letters_of(dead)] == ["mine"]


@pytest.mark.parametrize("wanted", [{"key": "tenant", "cost": 2000, "priority": 3}, {"priority": 9}, {"lifo": True}])
@pytest.mark.parametrize("kept", [True, False])
async def test_a_moved_job_waits_as_it_did_before(
    queue: AnyQueue, dead: AnyQueue, store: RunningStore, wanted: dict[str, object], kept: bool
) -> None:
    functions = Functions(queue.storage, f"glide:{{{queue.name}}}")
    options = stored_form(JobOptions(keep_failed=kept))
    await functions.add.jobs([AddRequest("mine", "n", b"\x05", options, msgpack.packb(wanted))])
    before = await functions.reading.get_records(["mine"])
    await run_all(queue, fail, dead_letter_queue=dead.name)
    assert [job.state for job in await dead.get_dead_letter_jobs()] == ["waiting"]
    assert await dead.replay_dead_letter_jobs() == 1
    after = await functions.reading.get_records(["mine"])
    assert [routed(record) for record in after] == [routed(record) for record in before]
    await run_all(queue, echo)
    assert (await queue.get_job_counts())["completed"] == 1


def routed(record: dict[bytes, bytes]) -> tuple[bytes, list[bytes]]:
    """Return how a job waits, except its position and the time of its add."""
    kind, *words = record[b"route"].split()
    return record[b"place"].split()[0], [
        kind,
        *(word for at, word in enumerate(words) if kind != b"k" or at not in {1, 3}),
    ]


async def test_queues_share_a_dead_letter_queue_and_their_ids(
    queue: AnyQueue, dead: AnyQueue, storage: Storage, name: str
) -> None:
    async with Queue[Any, Any](f"{name}-other", storage) as other:
        for origin in (queue, other):
            await origin.add("n", origin.name, job_id="same", keep_failed=False)
            await run_all(origin, fail, dead_letter_queue=dead.name)
        assert {(dead_letter.queue, dead_letter.job_id) for dead_letter in await dead_letters_of(dead)} == {
            (queue.name, "same"),
            (other.name, "same"),
        }
        assert await dead.replay_dead_letter_jobs() == 2
        for origin in (queue, other):
            assert [job.data for job in await origin.get_jobs("waiting")] == [origin.name]
            await run_all(origin, echo)


async def test_a_job_that_was_retried_by_hand_is_not_run_again(queue: AnyQueue, dead: AnyQueue) -> None:
    job = await queue.add("n", 5)
    await run_all(queue, fail, dead_letter_queue=dead.name)
    await job.retry()
    await run_all(queue, fail)
    assert len(await dead_letters_of(dead)) == 2
    # Of the two dead letters of one job, the newer one matches its present failure. The older one is removed without a
    # run.
    assert await dead.replay_dead_letter_jobs(1) == 1
    assert await dead_letters_of(dead) == []
    await run_all(queue, echo)
    assert [event.kind for event in await history(queue) if event.job_id == job.id].count("active") == 3
    assert await dead.count() == 0


async def test_an_interrupted_replay_runs_nothing_twice(queue: AnyQueue, dead: AnyQueue) -> None:
    job = await queue.add("n", 5, keep_failed=False, keep_completed=False)
    await run_all(queue, fail, dead_letter_queue=dead.name)

    async def cut_off(function: str, _: object) -> None:
        if function == "dropMoved":
            raise ConnectionError("cut off")

    way = Relay(dead.storage)
    way.before_call = cut_off
    with pytest.raises(ConnectionError):
        await Queue[Any, Any](dead.name, way).replay_dead_letter_jobs()
    await run_all(queue, echo)
    assert await queue.get_job(job.id) is None
    assert len(await dead_letters_of(dead)) == 1
    assert await dead.replay_dead_letter_jobs() == 0
    assert (await queue.count(), await dead.count()) == (0, 0)


async def test_two_concurrent_replays_run_each_job_once(queue: AnyQueue, dead: AnyQueue) -> None:
    await queue.add_bulk([("n", number, JobOptions(keep_failed=number % 2 == 0)) for number in range(60)])
    await run_all(queue, fail, concurrency=20, dead_letter_queue=dead.name)
    replays = await asyncio.gather(*(dead.replay_dead_letter_jobs() for _ in range(3)))
    assert sum(replays) == 60
    assert await queue.count() == 60
    assert await dead.count() == 0


async def test_the_limit_of_a_replay_is_kept(queue: AnyQueue, dead: AnyQueue) -> None:
    jobs = [await queue.add("n", number) for number in range(3)]
    await run_all(queue, fail, dead_letter_queue=dead.name)
    await queue.add("n", 9, ttl=0.02)
    await asyncio.sleep(0.05)
    await run_all(queue, fail)
    assert await dead.replay_dead_letter_jobs(cause="unrecoverable") == 0
    assert await dead.replay_dead_letter_jobs(1, cause="expired") == 1
    assert await dead.replay_dead_letter_jobs(2) == 2
    assert [dead_letter.job_id for dead_letter in await dead_letters_of(dead)] == [jobs[2].id]


async def test_an_active_dead_letter_is_left_unchanged(queue: AnyQueue, dead: AnyQueue) -> None:
    job = await queue.add("n", 5)
    await run_all(queue, fail, dead_letter_queue=dead.name)
    gate = Gate()
    async with worker_of(dead, gate):
        await gate.running()
        assert await dead.replay_dead_letter_jobs() == 0
        gate.release()
    assert await job.get_state() == "failed"
    assert (await dead.get_job_counts())["completed"] == 1


async def test_large_dead_letters_are_returned_in_steps(queue: AnyQueue, dead: AnyQueue) -> None:
    await queue.add_bulk([("n", bytes(400_000)) for _ in range(12)])
    await run_all(queue, hopeless, concurrency=4, dead_letter_queue=dead.name)
    assert len(await dead_letters_of(dead)) == 12
    assert await dead.replay_dead_letter_jobs() == 12
    assert (await queue.count(), await dead.count()) == (12, 0)
