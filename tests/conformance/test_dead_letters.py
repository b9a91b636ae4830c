"""Dead letters: what fails for good is kept with its cause in the same write, moved if asked, and can run again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgpack
import pytest

from glidemq_async import Backoff, DeadLetter, Execution, JobOptions, Queue, UnrecoverableError
from glidemq_async.functions.callers import AddRequest, Functions
from glidemq_async.storage import Storage
from tests.hands import Hands
from tests.places import Place
from tests.relay import Relay
from tests.workbench import AnyJob, AnyQueue, Gate, Heard, echo, ended, history, soon, told, worker_of


@pytest.fixture
async def dead(storage: Storage, name: str) -> AsyncIterator[AnyQueue]:
    """The named dead-letter queue of this test."""
    async with Queue[Any, Any](f"{name}-dead", storage) as opened:
        yield opened


@pytest.fixture
async def hands(queue: AnyQueue, place: Place) -> AsyncIterator[Hands]:
    made = Hands(queue, place)
    yield made
    await made.leave()


async def fail(job: AnyJob) -> None:
    raise ValueError(f"no {job.data}")


async def hopeless(job: AnyJob) -> None:
    raise UnrecoverableError("never")


async def too_large(job: AnyJob) -> bytes:
    return b"x" * 2_000_000


async def look(job: AnyJob) -> object:
    return job.data


async def ids_of(queue: AnyQueue, **options: Any) -> list[str]:
    return [job.id for job in await queue.get_dead_letter_jobs(**options)]


async def letters_of(queue: AnyQueue) -> list[DeadLetter]:
    found = [job.dead_letter for job in await queue.get_dead_letter_jobs()]
    return [letter for letter in found if letter is not None]


async def arrived(dead: AnyQueue, count: int) -> list[DeadLetter]:
    """Wait until so many dead letters have come."""
    async with asyncio.timeout(10):
        while True:
            found = await letters_of(dead)
            if len(found) >= count:
                return found
            await asyncio.sleep(0.01)


async def outbox_size(queue: AnyQueue, place: Place) -> object:
    return await place.ask("XLEN", f"glide:{{{queue.name}}}:outbox")


async def run_all(queue: AnyQueue, handler: Any, **options: Any) -> None:
    """Run what is there with one worker until nothing is left."""
    await soon(worker_of(queue, handler, **options).run(until_empty=True))


# -- causes ---------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_a_job_without_attempts_left_is_a_dead_letter(queue: AnyQueue) -> None:
    job = await queue.add("n", "cake", attempts=2)
    await run_all(queue, fail)
    [letter] = await queue.get_dead_letter_jobs()
    assert (letter.id, letter.data, letter.state) == (job.id, "cake", "failed")
    assert (letter.failure_cause, letter.failed_reason) == ("retries_exhausted", "ValueError: no cake")
    assert (letter.attempts_made, letter.dead_letter) == (2, None)


async def test_a_handler_that_gives_up(queue: AnyQueue) -> None:
    job = await queue.add("n", attempts=5)
    await run_all(queue, hopeless)
    assert ((await ended(job)).failure_cause, job.attempts_made) == ("unrecoverable", 1)


async def test_a_backoff_strategy_that_is_missing(queue: AnyQueue) -> None:
    job = await queue.add("n", attempts=5, backoff=Backoff.custom("mine"))
    await run_all(queue, fail)
    assert (await ended(job)).failure_cause == "unrecoverable"


async def test_a_result_over_the_limit(queue: AnyQueue) -> None:
    job = await queue.add("n", attempts=5)
    await run_all(queue, too_large)
    assert ((await ended(job)).failure_cause, job.attempts_made) == ("oversize", 1)


async def test_a_result_that_cannot_be_encoded(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> object:
        return object()

    job = await queue.add("n", attempts=5)
    await run_all(queue, handler)
    assert (await ended(job)).failure_cause == "unrecoverable"


async def test_data_that_cannot_be_decoded(queue: AnyQueue, place: Place) -> None:
    job = await queue.add("n", 1, attempts=5)
    await place.ask("HSET", f"glide:{{{queue.name}}}:job:{job.id}", "data", b"\xc1")
    await run_all(queue, look)
    assert ((await ended(job)).failure_cause, job.attempts_made) == ("malformed", 1)


async def test_options_that_cannot_be_decoded(queue: AnyQueue, place: Place) -> None:
    job = await queue.add("n", 1, attempts=5)
    await place.ask("HSET", f"glide:{{{queue.name}}}:job:{job.id}", "opts", b"\xc1")
    await run_all(queue, look)
    assert (await ended(job)).failure_cause == "malformed"


async def test_a_record_without_data(queue: AnyQueue, place: Place) -> None:
    job = await queue.add("n", 1)
    await place.ask("HDEL", f"glide:{{{queue.name}}}:job:{job.id}", "data")
    await run_all(queue, look)
    assert (await ended(job)).failure_cause == "malformed"
    await job.remove()


async def test_a_job_whose_workers_died(queue: AnyQueue, hands: Hands) -> None:
    job = await queue.add("n")
    [hold] = await hands.claim()
    await hands.vanish(hold)
    await hands.sweep(max_stalled=0)
    await job.refresh()
    assert (job.failure_cause, job.failed_reason) == ("stalled", "stalled")
    assert await ids_of(queue, cause="stalled") == [job.id]


@pytest.mark.parametrize("by", ["sweep", "claim"])
async def test_a_job_nobody_came_for(queue: AnyQueue, hands: Hands, by: str) -> None:
    job = await queue.add("n", ttl=0.02)
    await asyncio.sleep(0.05)
    if by == "sweep":
        await hands.sweep()
    assert await hands.claim() == []
    await job.refresh()
    assert job.failure_cause == "expired"
    assert await ids_of(queue) == [job.id]


async def test_a_revoked_job_is_no_dead_letter(queue: AnyQueue, dead: AnyQueue) -> None:
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
    [letter] = await letters_of(dead)
    assert (letter.cause, letter.reason) == ("unrecoverable", job.failed_reason)
    assert "try later" in letter.reason


async def test_a_job_that_has_not_failed_has_no_cause(queue: AnyQueue) -> None:
    job = await queue.add("n", 1)
    assert job.failure_cause is None
    await run_all(queue, echo)
    assert (await ended(job)).failure_cause is None


# -- looking --------------------------------------------------------------------------------------------------------


async def test_looking_changes_nothing_and_shows_the_newest_first(queue: AnyQueue) -> None:
    jobs = [await queue.add("n", number) for number in range(5)]
    await run_all(queue, fail)
    expected = [job.id for job in reversed(jobs)]
    assert await ids_of(queue) == expected
    assert await ids_of(queue) == expected
    assert await ids_of(queue, start=1, end=2) == expected[1:3]
    assert await ids_of(queue, start=3, end=10) == expected[3:]
    assert await ids_of(queue, cause="expired") == []


async def test_what_is_left_out_is_not_counted(queue: AnyQueue) -> None:
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
async def test_positions_are_checked(queue: AnyQueue, bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="0 <= start <= end"):
        await queue.get_dead_letter_jobs(*bounds)


async def test_causes_are_checked(queue: AnyQueue) -> None:
    for cause in ("revoked", "bored"):
        with pytest.raises(ValueError, match="cause must be one of expired, malformed"):
            await queue.get_dead_letter_jobs(cause=cause)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="cause must be one of"):
            await queue.replay_dead_letter_jobs(cause=cause)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="count"):
        await queue.replay_dead_letter_jobs(-1)


# -- replaying ------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_a_replayed_job_starts_anew_under_its_id(queue: AnyQueue) -> None:
    job = await queue.add("n", 7, attempts=2)
    await run_all(queue, fail)
    assert await queue.replay_dead_letter_jobs() == 1
    await job.refresh()
    assert (job.state, job.attempts_made, job.failed_reason, job.failure_cause) == ("waiting", 0, None, None)
    await run_all(queue, echo)
    assert await job.result(5) == 7
    assert await queue.replay_dead_letter_jobs() == 0
    assert ("waiting", "replayed") in await told(queue, job.id)


async def test_a_replay_wakes_idle_workers(queue: AnyQueue) -> None:
    job = await queue.add("n", 7)
    await run_all(queue, fail)
    async with worker_of(queue, echo):
        await soon(queue.add_and_wait("n", 1))
        assert await queue.replay_dead_letter_jobs() == 1
        assert await job.result(5) == 7


async def test_a_replay_of_many_ends_though_all_fail_again(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number) for number in range(450)])
    await run_all(queue, fail, concurrency=100)
    async with worker_of(queue, fail, concurrency=100):
        assert await soon(queue.replay_dead_letter_jobs()) == 450


async def test_a_replay_takes_the_oldest_and_the_cause_asked_for(queue: AnyQueue) -> None:
    exhausted = [await queue.add("n", number) for number in range(3)]
    await run_all(queue, fail)
    given_up = [await queue.add("n", number) for number in range(3)]
    await run_all(queue, hopeless)
    assert await queue.replay_dead_letter_jobs(2, cause="unrecoverable") == 2
    assert await ids_of(queue) == [given_up[2].id, *(job.id for job in reversed(exhausted))]
    assert await queue.replay_dead_letter_jobs(0) == 0
    assert await queue.replay_dead_letter_jobs(1) == 1
    assert await ids_of(queue, cause="retries_exhausted") == [exhausted[2].id, exhausted[1].id]


async def test_many_of_another_cause_are_passed_over(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number) for number in range(450)])
    await run_all(queue, fail, concurrency=100)
    await queue.add_bulk([("n", number) for number in range(250)])
    await run_all(queue, hopeless, concurrency=100)
    assert len(await queue.get_dead_letter_jobs(end=299, cause="unrecoverable")) == 250
    assert await queue.replay_dead_letter_jobs(cause="unrecoverable") == 250
    assert {job.failure_cause for job in await queue.get_dead_letter_jobs(end=999)} == {"retries_exhausted"}
    assert await queue.count() == 250


async def test_retention_bounds_the_dead_letters(queue: AnyQueue) -> None:
    jobs = [await queue.add("n", number, keep_failed=2) for number in range(5)]
    await run_all(queue, fail)
    assert await ids_of(queue) == [jobs[4].id, jobs[3].id]


# -- a named queue --------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_a_named_queue_gets_what_failed(queue: AnyQueue, dead: AnyQueue) -> None:
    options = JobOptions(attempts=2, headers={"tenant": "7"}, job_id="order/7")
    job = await queue.add("pay", {"sum": 3}, attempts=2, headers={"tenant": "7"}, job_id="order/7")
    await run_all(queue, fail, dead_letter_queue=dead.name)
    await ended(job)
    [moved] = await dead.get_dead_letter_jobs()
    assert (moved.name, moved.data, moved.state) == ("pay", {"sum": 3}, "waiting")
    assert (moved.options.attempts, moved.headers) == (options.attempts, options.headers)
    letter = moved.dead_letter
    assert letter is not None
    assert (letter.queue, letter.job_id, letter.cause) == (queue.name, "order/7", "retries_exhausted")
    assert (letter.reason, letter.attempts_made) == ("ValueError: no {'sum': 3}", 2)
    assert letter.failed_at == job.finished_at
    assert moved.id.startswith(f"{queue.name}/order/7/")
    assert job.state == "failed"
    assert ("dead-lettered", dead.name) in await told(queue, job.id)


@pytest.mark.only_on("cluster")
async def test_a_named_queue_in_another_slot(storage: Storage, place: Place) -> None:
    # Names enough for every node to be a target of every other one.
    queues = [Queue[Any, Any](f"q{number}", storage) for number in range(6)]
    async with Queue[Any, Any]("graves", storage) as dead:
        for queue in queues:
            await queue.add("n", queue.name)
            await run_all(queue, fail, dead_letter_queue=dead.name)
        assert {letter.queue for letter in await letters_of(dead)} == {queue.name for queue in queues}
        assert await dead.replay_dead_letter_jobs() == 6
        for queue in queues:
            await run_all(queue, echo)
            assert (await queue.get_job_counts())["completed"] == 1
            assert await outbox_size(queue, place) == 0
        assert await dead.count() == 0


@pytest.mark.parametrize("cause", ["stalled", "expired", "malformed"])
async def test_what_the_server_fails_is_moved_too(
    queue: AnyQueue, dead: AnyQueue, place: Place, hands: Hands, cause: str
) -> None:
    await queue.set_dead_letter_queue(dead.name)
    job = await queue.add("n", 5, ttl=0.02 if cause == "expired" else None)
    key = f"glide:{{{queue.name}}}:job:{job.id}"
    if cause == "stalled":
        [hold] = await hands.claim()
        await hands.vanish(hold)
        await hands.sweep(max_stalled=0)
    elif cause == "expired":
        await asyncio.sleep(0.05)
        await hands.sweep()
    else:
        await place.ask("HDEL", key, "name")
        assert await hands.claim() == []
    assert (await place.ask("HGET", key, "cause"), await outbox_size(queue, place)) == (cause.encode(), 1)
    async with worker_of(queue, echo, lock_duration=1):
        [letter] = await arrived(dead, 1)
    assert (letter.cause, letter.reason, letter.job_id) == (cause, cause, job.id)
    await queue.remove(job.id)


async def test_what_keeps_nothing_is_moved_all_the_same(queue: AnyQueue, dead: AnyQueue) -> None:
    await queue.add("n", 5, keep_failed=False)
    await run_all(queue, fail, dead_letter_queue=dead.name)
    assert await queue.get_dead_letter_jobs() == []
    assert [job.data for job in await dead.get_dead_letter_jobs()] == [5]


async def test_the_failure_and_the_move_are_one_write(
    queue: AnyQueue, dead: AnyQueue, place: Place, hands: Hands
) -> None:
    await queue.set_dead_letter_queue(dead.name)
    job = await queue.add("n", 5)
    [hold] = await hands.claim()
    await hands.settle(hold, "f")
    # Nobody relays, and yet nothing is lost: whoever works on the queue next finds it.
    await job.refresh()
    assert (job.state, await outbox_size(queue, place), await dead.count()) == ("failed", 1, 0)
    async with worker_of(queue, echo, lock_duration=1):
        await arrived(dead, 1)
    assert await place.ask("EXISTS", f"glide:{{{queue.name}}}:outbox") == 0


async def test_the_queue_keeps_its_dead_letter_queue(queue: AnyQueue, dead: AnyQueue) -> None:
    assert await queue.get_dead_letter_queue() is None
    await run_all(queue, echo, dead_letter_queue=dead.name)
    assert await queue.get_dead_letter_queue() == dead.name
    await queue.add("n", 1)
    await run_all(queue, fail)
    assert len(await letters_of(dead)) == 1
    await queue.set_dead_letter_queue(None)
    await queue.add("n", 2)
    await run_all(queue, fail)
    assert len(await letters_of(dead)) == 1


async def test_a_queue_is_not_its_own_dead_letter_queue(queue: AnyQueue) -> None:
    with pytest.raises(ValueError, match="the queue itself"):
        worker_of(queue, echo, dead_letter_queue=queue.name)
    with pytest.raises(ValueError, match="the queue itself"):
        await queue.set_dead_letter_queue(queue.name)
    with pytest.raises(ValueError, match="dead_letter_queue"):
        worker_of(queue, echo, dead_letter_queue="a:b")


async def test_a_long_id_is_moved_under_a_name_that_fits(queue: AnyQueue, dead: AnyQueue) -> None:
    job = await queue.add("n", 5, job_id="x" * 512)
    await run_all(queue, fail, dead_letter_queue=dead.name)
    [moved] = await dead.get_dead_letter_jobs()
    assert (await dead.get_job(moved.id)) is not None
    assert await dead.replay_dead_letter_jobs() == 1
    assert await job.get_state() == "waiting"


async def test_a_worker_can_work_on_dead_letters(queue: AnyQueue, dead: AnyQueue) -> None:
    job = await queue.add("n", 5)
    await run_all(queue, fail, dead_letter_queue=dead.name)
    seen: list[DeadLetter | None] = []

    async def bury(letter: AnyJob) -> None:
        seen.append(letter.dead_letter)

    await run_all(dead, bury)
    assert [(one.job_id, one.cause) for one in seen if one] == [(job.id, "retries_exhausted")]
    assert await dead.get_dead_letter_jobs() == []
    assert await dead.replay_dead_letter_jobs() == 0


async def test_what_fails_where_it_was_moved_stays_there(queue: AnyQueue, dead: AnyQueue) -> None:
    await queue.set_dead_letter_queue(dead.name)
    await dead.set_dead_letter_queue(queue.name)
    await queue.add("n", 5)
    await run_all(queue, fail)
    await run_all(dead, fail)
    await run_all(queue, fail)
    [letter] = await dead.get_dead_letter_jobs()
    assert (letter.state, letter.failure_cause) == ("failed", "retries_exhausted")
    assert await letters_of(queue) == []
    # It runs again where it failed last.
    assert await dead.replay_dead_letter_jobs() == 1
    await run_all(dead, echo)
    assert await dead.get_dead_letter_jobs() == []


# -- back from a named queue ----------------------------------------------------------------------------------------


async def test_a_moved_job_goes_back_where_its_record_stands(queue: AnyQueue, dead: AnyQueue) -> None:
    job = await queue.add("n", 5, attempts=2)
    await run_all(queue, fail, dead_letter_queue=dead.name)
    assert await dead.replay_dead_letter_jobs() == 1
    await job.refresh()
    assert (job.state, job.attempts_made) == ("waiting", 0)
    assert (await dead.get_job_counts())["waiting"] == 0
    await run_all(queue, echo)
    assert await job.result(5) == 5
    assert (await queue.get_job_counts())["completed"] == 1


async def test_a_moved_job_is_added_anew_when_its_record_is_gone(queue: AnyQueue, dead: AnyQueue) -> None:
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


@pytest.mark.parametrize("wanted", [{"key": "tenant", "cost": 2000, "priority": 3}, {"priority": 9}, {"lifo": True}])
@pytest.mark.parametrize("kept", [True, False])
async def test_a_moved_job_waits_as_it_did_before(
    queue: AnyQueue, dead: AnyQueue, place: Place, wanted: dict[str, object], kept: bool
) -> None:
    functions = Functions(queue.storage, f"glide:{{{queue.name}}}")
    options = JobOptions(keep_failed=kept).to_wire()
    await functions.add_jobs([AddRequest("mine", "n", b"\x05", options, msgpack.packb(wanted))])
    before = await functions.get_records(["mine"])
    await run_all(queue, fail, dead_letter_queue=dead.name)
    assert [job.state for job in await dead.get_dead_letter_jobs()] == ["waiting"]
    assert await dead.replay_dead_letter_jobs() == 1
    after = await functions.get_records(["mine"])
    assert [routed(record) for record in after] == [routed(record) for record in before]
    await run_all(queue, echo)
    assert (await queue.get_job_counts())["completed"] == 1


def routed(record: dict[bytes, bytes]) -> tuple[bytes, list[bytes]]:
    """How a job waits, but for its turn."""
    kind, *words = record[b"route"].split()
    return record[b"place"].split()[0], [kind, *(word for at, word in enumerate(words) if kind != b"k" or at != 1)]


async def test_queues_share_a_dead_letter_queue_and_their_ids(
    queue: AnyQueue, dead: AnyQueue, storage: Storage, name: str
) -> None:
    async with Queue[Any, Any](f"{name}-other", storage) as other:
        for origin in (queue, other):
            await origin.add("n", origin.name, job_id="same", keep_failed=False)
            await run_all(origin, fail, dead_letter_queue=dead.name)
        assert {(letter.queue, letter.job_id) for letter in await letters_of(dead)} == {
            (queue.name, "same"),
            (other.name, "same"),
        }
        assert await dead.replay_dead_letter_jobs() == 2
        for origin in (queue, other):
            assert [job.data for job in await origin.get_jobs("waiting")] == [origin.name]
            await run_all(origin, echo)


async def test_what_is_no_json_is_moved_as_it_is(queue: AnyQueue, dead: AnyQueue) -> None:
    data = {"raw": b"\x00\xff", "number": 2**63, 7: None}
    await queue.add("n", data)
    await run_all(queue, fail, dead_letter_queue=dead.name)
    assert [job.data for job in await dead.get_dead_letter_jobs()] == [data]


async def test_the_listener_is_told_the_cause(queue: AnyQueue) -> None:
    worker = worker_of(queue, hopeless)
    failed = Heard(worker, "failed")
    await queue.add("n", attempts=3)
    await soon(worker.run(until_empty=True))
    job, _ = await failed.next()
    assert (job.failure_cause, job.failed_reason) == ("unrecoverable", "UnrecoverableError: never")


async def test_a_claim_does_not_walk_many_jobs_that_are_late(queue: AnyQueue, hands: Hands) -> None:
    await queue.add_bulk([("n", number, JobOptions(ttl=0.02)) for number in range(900)])
    await asyncio.sleep(0.05)
    assert await hands.claim() == []
    failed = (await queue.get_job_counts())["failed"]
    assert 200 < failed < 600
    await run_all(queue, echo)
    assert (await queue.get_job_counts())["failed"] == 900


async def test_what_was_retried_by_hand_is_not_run_once_more(queue: AnyQueue, dead: AnyQueue) -> None:
    job = await queue.add("n", 5)
    await run_all(queue, fail, dead_letter_queue=dead.name)
    await job.retry()
    await run_all(queue, fail)
    assert len(await letters_of(dead)) == 2
    # Of the two letters of one job, the newer one tells its present failure; the older one goes without a run.
    assert await dead.replay_dead_letter_jobs(1) == 1
    assert await letters_of(dead) == []
    await run_all(queue, echo)
    assert [event.kind for event in await history(queue) if event.job_id == job.id].count("active") == 3
    assert await dead.count() == 0


async def test_a_replay_that_was_cut_off_runs_nothing_twice(queue: AnyQueue, dead: AnyQueue) -> None:
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
    assert len(await letters_of(dead)) == 1
    assert await dead.replay_dead_letter_jobs() == 0
    assert (await queue.count(), await dead.count()) == (0, 0)


async def test_two_replays_at_once_run_each_job_once(queue: AnyQueue, dead: AnyQueue) -> None:
    await queue.add_bulk([("n", number, JobOptions(keep_failed=number % 2 == 0)) for number in range(60)])
    await run_all(queue, fail, concurrency=20, dead_letter_queue=dead.name)
    replays = await asyncio.gather(*(dead.replay_dead_letter_jobs() for _ in range(3)))
    assert sum(replays) == 60
    assert await queue.count() == 60
    assert await dead.count() == 0


async def test_only_so_many_go_back(queue: AnyQueue, dead: AnyQueue) -> None:
    jobs = [await queue.add("n", number) for number in range(3)]
    await run_all(queue, fail, dead_letter_queue=dead.name)
    await queue.add("n", 9, ttl=0.02)
    await asyncio.sleep(0.05)
    await run_all(queue, fail)
    assert await dead.replay_dead_letter_jobs(cause="unrecoverable") == 0
    assert await dead.replay_dead_letter_jobs(1, cause="expired") == 1
    assert await dead.replay_dead_letter_jobs(2) == 2
    assert [letter.job_id for letter in await letters_of(dead)] == [jobs[2].id]


async def test_a_letter_that_is_being_worked_on_is_left_alone(queue: AnyQueue, dead: AnyQueue) -> None:
    job = await queue.add("n", 5)
    await run_all(queue, fail, dead_letter_queue=dead.name)
    gate = Gate()
    async with worker_of(dead, gate):
        await gate.running()
        assert await dead.replay_dead_letter_jobs() == 0
        gate.release()
    assert await job.get_state() == "failed"
    assert (await dead.get_job_counts())["completed"] == 1


async def test_large_letters_go_back_in_steps(queue: AnyQueue, dead: AnyQueue) -> None:
    await queue.add_bulk([("n", bytes(400_000)) for _ in range(12)])
    await run_all(queue, hopeless, concurrency=4, dead_letter_queue=dead.name)
    assert len(await letters_of(dead)) == 12
    assert await dead.replay_dead_letter_jobs() == 12
    assert (await queue.count(), await dead.count()) == (12, 0)
