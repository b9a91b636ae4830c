"""Dead letters: a job that fails for good is kept with its cause in the same write, and moved if configured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgpack
import pytest

from glidemq_async import Backoff, DeadLetter, Execution, JobOptions, Queue, SerializationError
from glidemq_async.storage import Storage
from tests.support.dead_letters import dead_letters_of, fail, hopeless, ids_of, run_all
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, Gate, Heard, echo, ended, job_events, soon, worker_of
from tests.support.stores import RunningStore


@pytest.fixture
async def dead(storage: Storage, name: str) -> AsyncIterator[AnyQueue]:
    """The named dead-letter queue of this test."""
    async with Queue[Any, Any](f"{name}-dead", storage) as opened:
        yield opened


async def too_large(job: AnyJob) -> bytes:
    return b"x" * 2_000_000


async def look(job: AnyJob) -> object:
    return job.data


async def arrived(dead: AnyQueue, count: int) -> list[DeadLetter]:
    """Wait until this many dead letters have arrived."""
    async with asyncio.timeout(10):
        while True:
            found = await dead_letters_of(dead)
            if len(found) >= count:
                return found
            await asyncio.sleep(0.01)


async def outbox_size(queue: AnyQueue, store: RunningStore) -> object:
    return await store.ask("XLEN", f"glide:{{{queue.name}}}:outbox")


# -- causes ---------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_a_job_without_attempts_left_is_a_dead_letter(queue: AnyQueue) -> None:
    job = await queue.add("n", "cake", attempts=2)
    await run_all(queue, fail)
    [dead_letter] = await queue.get_dead_letter_jobs()
    assert (dead_letter.id, dead_letter.data, dead_letter.state) == (job.id, "cake", "failed")
    assert (dead_letter.failure_cause, dead_letter.failed_reason) == ("retries_exhausted", "ValueError: no cake")
    assert (dead_letter.attempts_made, dead_letter.dead_letter) == (2, None)


async def test_unrecoverable_is_the_cause_of_a_handler_that_gives_up(queue: AnyQueue) -> None:
    job = await queue.add("n", attempts=5)
    await run_all(queue, hopeless)
    assert ((await ended(job)).failure_cause, job.attempts_made) == ("unrecoverable", 1)


async def test_a_missing_backoff_strategy_is_a_cause(queue: AnyQueue) -> None:
    job = await queue.add("n", attempts=5, backoff=Backoff.custom("mine"))
    await run_all(queue, fail)
    assert (await ended(job)).failure_cause == "unrecoverable"


async def test_a_result_over_the_limit_is_a_cause(queue: AnyQueue) -> None:
    job = await queue.add("n", attempts=5)
    await run_all(queue, too_large)
    assert ((await ended(job)).failure_cause, job.attempts_made) == ("oversize", 1)


async def test_a_result_that_cannot_be_encoded_is_a_cause(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> object:
        return object()

    job = await queue.add("n", attempts=5)
    await run_all(queue, handler)
    assert (await ended(job)).failure_cause == "unrecoverable"


@pytest.mark.parametrize("data", [b"\xc1", b"\x81\x90\x01"], ids=["an unused byte", "a list as a key"])
async def test_data_that_cannot_be_decoded_is_a_cause(queue: AnyQueue, store: RunningStore, data: bytes) -> None:
    job = await queue.add("n", 1, attempts=5, job_id="own")
    await store.ask("HSET", f"glide:{{{queue.name}}}:job:{job.id}", "data", data)
    await run_all(queue, look)
    assert ((await ended(job)).failure_cause, job.attempts_made) == ("malformed", 1)
    with pytest.raises(SerializationError, match="data of job own cannot be decoded"):
        await look(job)


async def test_options_that_cannot_be_decoded_are_a_cause(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n", 1, attempts=5, job_id="own")
    await store.ask("HSET", f"glide:{{{queue.name}}}:job:{job.id}", "opts", b"\xc1")
    await run_all(queue, look)
    assert (await ended(job)).failure_cause == "malformed"


async def test_a_record_without_data_is_a_cause(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n", 1, job_id="own")
    await store.ask("HDEL", f"glide:{{{queue.name}}}:job:{job.id}", "data")
    await run_all(queue, look)
    assert (await ended(job)).failure_cause == "malformed"
    await job.remove()


async def test_stalled_is_the_cause_of_a_job_whose_workers_died(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    job = await queue.add("n")
    [lease] = await fake_worker.claim()
    await fake_worker.vanish(lease)
    await fake_worker.sweep(max_stalled=0)
    await job.refresh()
    assert (job.failure_cause, job.failed_reason) == ("stalled", "stalled")
    assert await ids_of(queue, cause="stalled") == [job.id]


@pytest.mark.parametrize("by", ["sweep", "claim"])
async def test_expired_is_the_cause_of_a_job_that_no_worker_claimed(
    queue: AnyQueue, fake_worker: FakeWorker, by: str
) -> None:
    job = await queue.add("n", ttl=0.02)
    await asyncio.sleep(0.05)
    if by == "sweep":
        await fake_worker.sweep()
    assert await fake_worker.claim() == []
    await job.refresh()
    assert job.failure_cause == "expired"
    assert await ids_of(queue) == [job.id]


async def test_a_revoked_job_is_not_a_dead_letter(queue: AnyQueue, dead: AnyQueue) -> None:
    gate = Gate()
    await queue.set_dead_letter_queue(dead.name)
    async with worker_of(queue, gate):
        running = await queue.add("n")
        await gate.running()
        waiting = await queue.add("n", delay=60)
        assert await queue.revoke(waiting.id)
        await queue.revoke(running.id)
        await gate.stopped()
        assert (await ended(running)).failure_cause == "revoked"
    await waiting.refresh()
    assert waiting.failure_cause == "revoked"
    assert await ids_of(queue) == []
    assert await queue.replay_dead_letter_jobs() == 0
    assert await dead.count() == 0


async def test_a_changed_outcome_keeps_its_cause(queue: AnyQueue, dead: AnyQueue) -> None:
    def soften(execution: Execution) -> None:
        execution.message = "try later"

    job = await queue.add("n", attempts=3, result_ttl=60)
    await run_all(queue, hopeless, after_execution=soften, dead_letter_queue=dead.name)
    assert (await ended(job)).failure_cause == "unrecoverable"
    [dead_letter] = await dead_letters_of(dead)
    assert (dead_letter.cause, dead_letter.reason) == ("unrecoverable", job.failed_reason)
    assert "try later" in dead_letter.reason


async def test_a_job_that_has_not_failed_has_no_cause(queue: AnyQueue) -> None:
    job = await queue.add("n", 1)
    assert job.failure_cause is None
    await run_all(queue, echo)
    assert (await ended(job)).failure_cause is None


async def test_the_listener_receives_the_cause(queue: AnyQueue) -> None:
    worker = worker_of(queue, hopeless)
    failed = Heard(worker, "failed")
    await queue.add("n", attempts=3)
    await soon(worker.run(until_empty=True))
    job, _ = await failed.next()
    assert (job.failure_cause, job.failed_reason) == ("unrecoverable", "UnrecoverableError: never")


async def test_a_claim_fails_only_a_bounded_number_of_expired_jobs(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    await queue.add_bulk([("n", number, JobOptions(ttl=0.02)) for number in range(900)])
    await asyncio.sleep(0.05)
    assert (await fake_worker.claim_in_one_call(1)).jobs == []
    failed = (await queue.get_job_counts())["failed"]
    assert 1 <= failed < 600
    await run_all(queue, echo)
    assert (await queue.get_job_counts())["failed"] == 900


# -- reading --------------------------------------------------------------------------------------------------------


async def test_reading_changes_nothing_and_returns_the_newest_first(queue: AnyQueue) -> None:
    jobs = [await queue.add("n", number) for number in range(5)]
    await run_all(queue, fail)
    expected = [job.id for job in reversed(jobs)]
    assert await ids_of(queue) == expected
    assert await ids_of(queue) == expected
    assert await ids_of(queue, start=1, end=2) == expected[1:3]
    assert await ids_of(queue, start=3, end=10) == expected[3:]
    assert await ids_of(queue, cause="expired") == []


async def test_excluded_causes_are_not_counted(queue: AnyQueue) -> None:
    good = [await queue.add("n", 0)]
    await run_all(queue, fail)
    for _ in range(3):
        await queue.revoke((await queue.add("n", delay=60)).id)
        good.append(await queue.add("n", 0))
        await run_all(queue, fail)
    expected = [job.id for job in reversed(good)]
    assert await ids_of(queue, start=0, end=1) == expected[:2]
    assert await ids_of(queue, start=2, end=3) == expected[2:]


@pytest.mark.parametrize("bounds", [(-1, 3), (4, 3)])
async def test_invalid_positions_of_dead_letters_are_refused(queue: AnyQueue, bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="0 <= start <= end"):
        await queue.get_dead_letter_jobs(*bounds)


async def test_unknown_causes_of_dead_letters_are_refused(queue: AnyQueue) -> None:
    for cause in ("revoked", "bored"):
        with pytest.raises(ValueError, match="cause must be one of child_failed, diverged, expired, malformed"):
            await queue.get_dead_letter_jobs(cause=cause)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="cause must be one of"):
            await queue.replay_dead_letter_jobs(cause=cause)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="count"):
        await queue.replay_dead_letter_jobs(-1)


async def test_retention_bounds_the_dead_letters(queue: AnyQueue) -> None:
    jobs = [await queue.add("n", number, keep_failed=2) for number in range(5)]
    await run_all(queue, fail)
    assert await ids_of(queue) == [jobs[4].id, jobs[3].id]


# -- a named queue --------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_a_named_queue_receives_failed_jobs(queue: AnyQueue, dead: AnyQueue) -> None:
    options = JobOptions(attempts=2, headers={"tenant": "7"}, job_id="order/7")
    job = await queue.add("pay", {"sum": 3}, attempts=2, headers={"tenant": "7"}, job_id="order/7")
    await run_all(queue, fail, dead_letter_queue=dead.name)
    await ended(job)
    [moved] = await dead.get_dead_letter_jobs()
    assert (moved.name, moved.data, moved.state) == ("pay", {"sum": 3}, "waiting")
    assert (moved.options.attempts, moved.headers) == (options.attempts, options.headers)
    dead_letter = moved.dead_letter
    assert dead_letter is not None
    assert (dead_letter.queue, dead_letter.job_id, dead_letter.cause) == (queue.name, "order/7", "retries_exhausted")
    assert (dead_letter.reason, dead_letter.attempts_made) == ("ValueError: no {'sum': 3}", 2)
    assert dead_letter.failed_at == job.finished_at
    assert moved.id.startswith(f"{queue.name}/order/7/")
    assert job.state == "failed"
    assert ("dead-lettered", dead.name) in await job_events(queue, job.id)


@pytest.mark.only_on("cluster")
async def test_a_dead_letter_queue_can_be_in_another_cluster_slot(storage: Storage, store: RunningStore) -> None:
    # Enough names to make every node a target of every other one.
    queues = [Queue[Any, Any](f"q{number}", storage) for number in range(6)]
    async with Queue[Any, Any]("graves", storage) as dead:
        for queue in queues:
            await queue.add("n", queue.name)
            await run_all(queue, fail, dead_letter_queue=dead.name)
        assert {dead_letter.queue for dead_letter in await dead_letters_of(dead)} == {queue.name for queue in queues}
        assert await dead.replay_dead_letter_jobs() == 6
        for queue in queues:
            await run_all(queue, echo)
            assert (await queue.get_job_counts())["completed"] == 1
            assert await outbox_size(queue, store) == 0
        assert await dead.count() == 0


@pytest.mark.parametrize("cause", ["stalled", "expired", "malformed"])
async def test_jobs_that_the_server_fails_are_moved_too(
    queue: AnyQueue, dead: AnyQueue, store: RunningStore, fake_worker: FakeWorker, cause: str
) -> None:
    await queue.set_dead_letter_queue(dead.name)
    job = await queue.add("n", 5, ttl=0.02 if cause == "expired" else None, job_id="own")
    key = f"glide:{{{queue.name}}}:job:{job.id}"
    if cause == "stalled":
        [lease] = await fake_worker.claim()
        await fake_worker.vanish(lease)
        await fake_worker.sweep(max_stalled=0)
    elif cause == "expired":
        await asyncio.sleep(0.05)
        await fake_worker.sweep()
    else:
        await store.ask("HDEL", key, "name")
        assert await fake_worker.claim() == []
    assert (await store.ask("HGET", key, "cause"), await outbox_size(queue, store)) == (cause.encode(), 1)
    async with worker_of(queue, echo, lock_duration=1):
        [dead_letter] = await arrived(dead, 1)
    assert (dead_letter.cause, dead_letter.reason, dead_letter.job_id) == (cause, cause, job.id)
    await queue.remove(job.id)


@pytest.mark.parametrize("change", [None, "progress", "data"])
async def test_a_stalled_plain_job_is_moved_with_its_present_payload(
    queue: AnyQueue, dead: AnyQueue, fake_worker: FakeWorker, change: Literal["progress", "data"] | None
) -> None:
    await queue.set_dead_letter_queue(dead.name)
    jobs = [await queue.add("n", ["first", number]) for number in range(3)]
    leases = await fake_worker.claim(3)
    if change:
        await fake_worker.update(leases[1], change, msgpack.packb(["changed"]))
    await fake_worker.vanish(*leases)
    await fake_worker.sweep(max_stalled=0)
    async with worker_of(queue, echo, lock_duration=1):
        await arrived(dead, 3)
    moved = {job.dead_letter.job_id: job.data for job in await dead.get_dead_letter_jobs() if job.dead_letter}
    second = ["changed"] if change == "data" else ["first", 1]
    assert [moved[job.id] for job in jobs] == [["first", 0], second, ["first", 2]]


async def test_a_job_is_moved_even_if_its_queue_keeps_no_failures(queue: AnyQueue, dead: AnyQueue) -> None:
    await queue.add("n", 5, keep_failed=False)
    await run_all(queue, fail, dead_letter_queue=dead.name)
    assert await queue.get_dead_letter_jobs() == []
    assert [job.data for job in await dead.get_dead_letter_jobs()] == [5]


async def test_the_failure_and_the_move_are_one_write(
    queue: AnyQueue, dead: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    await queue.set_dead_letter_queue(dead.name)
    job = await queue.add("n", 5)
    [lease] = await fake_worker.claim()
    await fake_worker.settle(lease, "f")
    # No process relays, but nothing is lost: the next process that works on the queue relays it.
    await job.refresh()
    assert (job.state, await outbox_size(queue, store), await dead.count()) == ("failed", 1, 0)
    async with worker_of(queue, echo, lock_duration=1):
        await arrived(dead, 1)
    assert await store.ask("EXISTS", f"glide:{{{queue.name}}}:outbox") == 0


async def test_the_queue_keeps_its_dead_letter_queue(queue: AnyQueue, dead: AnyQueue) -> None:
    assert await queue.get_dead_letter_queue() is None
    await run_all(queue, echo, dead_letter_queue=dead.name)
    assert await queue.get_dead_letter_queue() == dead.name
    await queue.add("n", 1)
    await run_all(queue, fail)
    assert len(await dead_letters_of(dead)) == 1
    await queue.set_dead_letter_queue(None)
    await queue.add("n", 2)
    await run_all(queue, fail)
    assert len(await dead_letters_of(dead)) == 1


async def test_a_queue_is_not_its_own_dead_letter_queue(queue: AnyQueue) -> None:
    with pytest.raises(ValueError, match="the queue itself"):
        worker_of(queue, echo, dead_letter_queue=queue.name)
    with pytest.raises(ValueError, match="the queue itself"):
        await queue.set_dead_letter_queue(queue.name)
    with pytest.raises(ValueError, match="dead_letter_queue"):
        worker_of(queue, echo, dead_letter_queue="a:b")


async def test_a_long_id_is_moved_under_a_shortened_name(queue: AnyQueue, dead: AnyQueue) -> None:
    job = await queue.add("n", 5, job_id="x" * 512)
    await run_all(queue, fail, dead_letter_queue=dead.name)
    [moved] = await dead.get_dead_letter_jobs()
    assert (await dead.get_job(moved.id)) is not None
    assert await dead.replay_dead_letter_jobs() == 1
    assert await job.get_state() == "waiting"


async def test_a_worker_can_run_dead_letters(queue: AnyQueue, dead: AnyQueue) -> None:
    job = await queue.add("n", 5)
    await run_all(queue, fail, dead_letter_queue=dead.name)
    seen: list[DeadLetter | None] = []

    async def bury(dead_letter: AnyJob) -> None:
        seen.append(dead_letter.dead_letter)

    await run_all(dead, bury)
    assert [(one.job_id, one.cause) for one in seen if one] == [(job.id, "retries_exhausted")]
    assert await dead.get_dead_letter_jobs() == []
    assert await dead.replay_dead_letter_jobs() == 0


async def test_a_dead_letter_that_fails_again_stays_in_its_queue(queue: AnyQueue, dead: AnyQueue) -> None:
    await queue.set_dead_letter_queue(dead.name)
    await dead.set_dead_letter_queue(queue.name)
    await queue.add("n", 5)
    await run_all(queue, fail)
    await run_all(dead, fail)
    await run_all(queue, fail)
    [dead_letter] = await dead.get_dead_letter_jobs()
    assert (dead_letter.state, dead_letter.failure_cause) == ("failed", "retries_exhausted")
    assert await dead_letters_of(queue) == []
    # It runs again in the queue where it failed last.
    assert await dead.replay_dead_letter_jobs() == 1
    await run_all(dead, echo)
    assert await dead.get_dead_letter_jobs() == []


async def test_a_payload_that_is_not_json_is_moved_unchanged(queue: AnyQueue, dead: AnyQueue) -> None:
    data = {"raw": b"\x00\xff", "number": 2**63, 7: None}
    await queue.add("n", data)
    await run_all(queue, fail, dead_letter_queue=dead.name)
    assert [job.data for job in await dead.get_dead_letter_jobs()] == [data]
