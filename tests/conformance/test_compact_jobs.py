"""Compact jobs: LIFO, prioritized and keyed jobs have no record until something else must be stored for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import pytest

from glidemq_async import JobOptions
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.outcomes import Completed, Retention
from glidemq_async.storage.protocol import FunctionError
from tests.support.clocked_queue import Timed
from tests.support.fake_worker import FakeWorker, Lease
from tests.support.helpers import AnyJob, AnyQueue, counts, echo, ended, job_events, records, worker_of
from tests.support.kinds import options_of
from tests.support.stores import RunningStore

State: TypeAlias = Literal["waiting", "active", "completed"]
STATES: tuple[State, ...] = ("waiting", "active", "completed")
WAITING_STATES = {"lifo": "waiting", "prioritized": "prioritized", "keyed": "key-waiting"}

everywhere = pytest.mark.everywhere
in_every_state = pytest.mark.parametrize("state", STATES)
of_each_kind = pytest.mark.parametrize("kind", [*WAITING_STATES])


async def job_in(state: State, kind: str, queue: AnyQueue, fake_worker: FakeWorker) -> AnyJob:
    """Return a compact job in this state, the second of three."""
    jobs = await queue.add_bulk([("n", number, JobOptions(**options_of(kind, number))) for number in range(3)])
    if state == "waiting":
        assert await jobs[1].get_state() == WAITING_STATES[kind]
        return jobs[1]
    leases = {lease.id: lease for lease in await fake_worker.claim(3)}
    if state == "completed":
        await fake_worker.complete(leases[jobs[1].id])
    assert await jobs[1].get_state() == state
    return jobs[1]


async def finish_all(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    """Hand the running jobs back, and run all jobs to their ends. Nothing is wrong or left over."""
    await fake_worker.leave()
    await worker_of(queue, echo).run(until_empty=True)
    assert await queue.check() == []
    assert {state for state, number in (await queue.get_job_counts()).items() if number} <= {"completed", "failed"}


@everywhere
@of_each_kind
async def test_a_compact_job_runs_without_a_record(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kind: str
) -> None:
    jobs = [await queue.add("n", number, attempts=2 + number, **options_of(kind, number)) for number in range(2)]
    jobs += await queue.add_bulk([("n", number, JobOptions(**options_of(kind, number))) for number in range(2, 20)])
    assert await records(queue, store) == set()
    assert await queue.check() == []
    leases = await fake_worker.claim(20)
    assert {lease.id for lease in leases} == {job.id for job in jobs}
    assert {lease.fence for lease in leases} == {1}
    await fake_worker.renew(*leases)
    assert {job.id for job in await queue.get_jobs("active")} == {job.id for job in jobs}
    await fake_worker.complete(*leases)
    assert await records(queue, store) == set()
    for number, job in enumerate(jobs):
        await job.refresh()
        assert (job.state, job.fence, job.attempts_made, job.data) == ("completed", 1, 1, number)
        assert [event for event, _ in await job_events(queue, job.id)] == ["added", "active", "completed"]
    assert await counts(queue) == {"completed": 20}
    assert await queue.check() == []


@everywhere
async def test_a_group_whose_ids_stand_between_its_entries_is_refused(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    """Earlier builds sent groups in this form."""
    await queue.add_bulk([("n", number, JobOptions(lifo=True)) for number in range(2)])
    leases = await fake_worker.claim(2)
    runs = [word for lease in leases for word in (lease.entry[1:], lease.id)]
    head: list[str | int] = [
        fake_worker.channel.name,
        fake_worker.channel.next(),
        fake_worker.name,
        0,
        30_000,
        "u",
        "2 0",
        "",
    ]
    with pytest.raises(FunctionError, match="must begin with members"):
        await queue.storage.call("settleAndClaim", fake_worker.base, [*head, 1, "l", "", 2, *runs, 1, b"\xc0", 0])
    assert await counts(queue) == {"active": 2}
    await fake_worker.complete(*leases)
    assert await counts(queue) == {"completed": 2}


@everywhere
@of_each_kind
@in_every_state
async def test_a_compact_job_can_be_read_in_every_state(
    queue: AnyQueue, fake_worker: FakeWorker, kind: str, state: State
) -> None:
    job = await job_in(state, kind, queue, fake_worker)
    found = await queue.get_job(job.id)
    assert found is not None
    expected = WAITING_STATES[kind] if state == "waiting" else state
    assert (found.name, found.data, found.state, found.created_at) == ("n", 1, expected, job.created_at)
    assert (found.lifo, found.priority, found.key) == (
        kind == "lifo",
        3 if kind == "prioritized" else 0,
        options_of(kind, 1).get("key"),
    )
    assert (found.processed_at is None, found.finished_at is None) == (state == "waiting", state != "completed")
    assert [each.id for each in await queue.search_jobs(state=found.state, data=1)] == [job.id]
    assert (await queue.explain(job.id)).state == expected
    await finish_all(queue, fake_worker)


@everywhere
@of_each_kind
@in_every_state
async def test_updates_of_a_compact_job_stay(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kind: str, state: State
) -> None:
    job = await job_in(state, kind, queue, fake_worker)
    await job.log("by hand")
    await job.update_progress(7)
    await job.update_data("changed")
    assert await records(queue, store) == {job.id}
    assert await queue.check() == []
    assert await job.get_state() == (WAITING_STATES[kind] if state == "waiting" else state)
    await finish_all(queue, fake_worker)
    await job.refresh()
    assert (job.data, job.progress, await queue.get_job_logs(job.id)) == ("changed", 7, ["by hand"])
    assert job.return_value == (None if state == "completed" else "changed")


@everywhere
@of_each_kind
@pytest.mark.parametrize("verb", ["f", "r", "d", "b", "l"])
async def test_another_outcome_gives_a_compact_job_a_record(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kind: str, verb: str
) -> None:
    job = await queue.add("n", 1, attempts=3, **options_of(kind, 1))
    [lease] = await fake_worker.claim()
    assert await fake_worker.settle(lease, verb) is None
    assert await records(queue, store) == {job.id}
    assert await fake_worker.settle(lease, verb) == "stale"
    assert await queue.check() == []


@everywhere
@of_each_kind
@in_every_state
async def test_a_compact_job_can_be_removed(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kind: str, state: State
) -> None:
    job = await job_in(state, kind, queue, fake_worker)
    assert await queue.remove(job.id)
    assert not await queue.remove(job.id)
    assert await queue.get_job(job.id) is None
    assert job.id not in await records(queue, store)
    await finish_all(queue, fake_worker)
    assert await counts(queue) == {"completed": 2}


@everywhere
@of_each_kind
async def test_a_client_that_waits_gets_the_result_of_a_compact_job(
    queue: AnyQueue, fake_worker: FakeWorker, kind: str
) -> None:
    job = await queue.add("n", 5, **options_of(kind, 1))
    async with worker_of(queue, echo):
        assert await job.result(10) == 5
        assert await queue.add_and_wait("n", 6, wait_timeout=10, **options_of(kind, 2)) == 6
    assert (await ended(job)).return_value == 5
    assert await queue.check() == []


async def _clean(queue: AnyQueue) -> None:
    assert len(await queue.clean(state="completed")) == 3


async def _obliterate(queue: AnyQueue) -> None:
    await queue.obliterate()


async def _retry(queue: AnyQueue) -> None:
    assert await queue.retry_jobs("completed") == 3
    assert sum((await counts(queue)).values()) == 3
    assert await queue.drain() == 3


@everywhere
@of_each_kind
@pytest.mark.parametrize("way", [_clean, _obliterate, _retry], ids=lambda way: way.__name__)
async def test_nothing_stays_of_completed_compact_jobs(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kind: str, way: Callable[[AnyQueue], Awaitable[None]]
) -> None:
    await job_in("waiting", kind, queue, fake_worker)
    await fake_worker.complete(*await fake_worker.claim(3))
    await way(queue)
    assert await counts(queue) == {}
    assert await store.ask("EXISTS", f"{fake_worker.base}:compact", f"{fake_worker.base}:compact_runs") == 0
    assert await records(queue, store) == set()


@everywhere
@of_each_kind
async def test_retention_removes_completed_compact_jobs(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kind: str
) -> None:
    jobs = await queue.add_bulk([("n", n, JobOptions(keep_completed=2, **options_of(kind, n))) for n in range(5)])
    await worker_of(queue, echo, concurrency=1).run(until_empty=True)
    kept = [job for job in jobs if await queue.get_job(job.id) is not None]
    assert len(kept) == 2
    assert await store.ask("HLEN", f"{fake_worker.base}:compact") == 2
    assert await store.ask("HLEN", f"{fake_worker.base}:compact_runs") == 2
    dropped = await queue.add("n", 9, keep_completed=0, **options_of(kind, 9))
    await worker_of(queue, echo).run(until_empty=True)
    assert await queue.get_job(dropped.id) is None
    assert await records(queue, store) == set()


@of_each_kind
async def test_an_expired_lease_returns_a_compact_job(timed: Timed, kind: str) -> None:
    job = await timed.queue.add("n", 1, **options_of(kind, 1))
    [lease] = await timed.fake_worker.claim()
    await timed.fake_worker.vanish(lease)
    await timed.fake_worker.sweep()
    assert await timed.fake_worker.settle(lease) == "stale"
    await job.refresh()
    assert (job.stalled_count, job.state) == (1, "key-waiting" if kind == "keyed" else "waiting")
    [again] = await timed.fake_worker.claim()
    assert (again.id, again.fence) == (job.id, 2)
    assert await timed.fake_worker.settle(again) is None
    assert await timed.queue.check() == []


@everywhere
@of_each_kind
async def test_a_sweep_leaves_a_compact_job_whose_lease_is_valid(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kind: str
) -> None:
    """The other job has a shorter lease, so the sweep looks at the lease of each run."""
    await queue.add_bulk([("n", number, JobOptions(**options_of(kind, number))) for number in range(2)])
    [long] = await fake_worker.claim(1, 30_000)
    await fake_worker.claim(1, 1_000)
    await fake_worker.vanish(long, for_ms=10_000)
    await fake_worker.sweep()
    assert await records(queue, store) == set()
    assert await fake_worker.settle(long) is None
    assert await queue.check() == []


@everywhere
@of_each_kind
async def test_a_result_with_a_time_to_live_gives_a_compact_job_a_record(
    queue: AnyQueue, store: RunningStore, kind: str
) -> None:
    job = await queue.add("n", 7, result_ttl=60, **options_of(kind, 1))
    await worker_of(queue, echo).run(until_empty=True)
    assert await records(queue, store) == {job.id}
    assert (await ended(job)).return_value == 7
    assert await queue.check() == []


@everywhere
@of_each_kind
async def test_the_result_of_a_compact_job_waits_for_its_client_though_retention_keeps_nothing(
    queue: AnyQueue, functions: Functions, store: RunningStore, fake_worker: FakeWorker, kind: str
) -> None:
    job = await queue.add("n", 5, **options_of(kind, 1))
    await functions.job_waiters.add(job.id, "client")
    await fake_worker.complete(*await fake_worker.claim(), retention=[Retention(0)])
    assert await records(queue, store) == {job.id}
    assert await job.get_state() == "completed"
    assert await queue.check() == []
    await functions.job_waiters.confirm("client", [job.id])
    assert await counts(queue) == {}
    assert await queue.check() == []


@everywhere
@of_each_kind
async def test_a_repeated_claim_returns_its_compact_jobs_while_they_run(
    queue: AnyQueue, fake_worker: FakeWorker, kind: str
) -> None:
    await queue.add_bulk([("n", number, JobOptions(**options_of(kind, number))) for number in range(3)])
    leases = await fake_worker.claim(3)
    again = await fake_worker.repeat()
    assert [(job.id, job.entry, job.fence) for job in again.jobs] == [(one.id, one.entry, 1) for one in leases]
    assert {job.history.route for job in again.jobs if job.history} <= {b"l", b"p 3"} or kind == "keyed"


@everywhere
@of_each_kind
async def test_a_worker_that_lost_its_lease_cannot_complete_a_compact_job(
    queue: AnyQueue, fake_worker: FakeWorker, kind: str
) -> None:
    """The first run of the call is stale, and the second one is valid."""
    jobs = await queue.add_bulk([("n", number, JobOptions(**options_of(kind, number))) for number in range(2)])
    leases = await fake_worker.claim(2)
    await fake_worker.settle(leases[0], "b")
    reply = await fake_worker.complete(*leases)
    assert reply.refused == {0: "stale"}
    states = {job.id: await job.get_state() for job in jobs}
    assert states[leases[1].id] == "completed"
    assert states[leases[0].id] in {"waiting", "key-waiting"}
    assert await queue.check() == []


@everywhere
async def test_a_late_completion_frees_no_slot_of_its_key(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    """The first job runs again, and the call also completes a run of another key."""
    jobs = await queue.add_bulk([("n", key, JobOptions(key=key)) for key in ("x", "y", "x")])
    late, other = await fake_worker.claim(3)
    assert [late.id, other.id] == [jobs[0].id, jobs[1].id]
    await fake_worker.settle(late, "b")
    [again] = await fake_worker.claim(3)
    assert (await fake_worker.complete(late, other)).refused == {0: "stale"}
    assert await fake_worker.claim(3) == []
    assert await queue.check() == []
    await fake_worker.complete(again)
    assert [lease.id for lease in await fake_worker.claim(3)] == [jobs[2].id]


async def _claimed(queue: AnyQueue, fake_worker: FakeWorker, kind: str, number: int) -> list[Lease]:
    """Return the leases of this many compact jobs of one claim, in the order of the claim."""
    await queue.add_bulk([("n", n, JobOptions(**options_of(kind, n))) for n in range(number)])
    return await fake_worker.claim(number)


@everywhere
@of_each_kind
@pytest.mark.parametrize("known", [True, False], ids=["known start", "unknown start"])
@pytest.mark.parametrize(
    "results", [(b"\x01", b"\x01", b"\x01"), (b"\x01", b"\x02", b"\x03")], ids=["equal", "different"]
)
async def test_the_end_of_a_compact_job_has_its_times_and_its_result(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kind: str, known: bool, results: tuple[bytes, ...]
) -> None:
    leases = await _claimed(queue, fake_worker, kind, 3)
    assert {lease.claimed_at for lease in leases} != {None}
    running = [await queue.get_job(lease.id) for lease in leases]
    sent = leases if known else [lease._replace(claimed_at=None) for lease in leases]
    reply = await fake_worker.settle_all([(lease, Completed(each)) for lease, each in zip(sent, results, strict=True)])
    assert (reply.refused, reply.settled) == ({}, 3)
    for lease, before, result in zip(leases, running, results, strict=True):
        job = await queue.get_job(lease.id)
        assert job is not None
        assert before is not None
        assert (job.state, job.return_value, job.processed_at) == ("completed", result[0], before.processed_at)
        assert job.finished_at is not None
        assert round(job.finished_at.timestamp() * 1000) == reply.now
    assert await records(queue, store) == set()
    assert await queue.check() == []


@everywhere
@of_each_kind
async def test_compact_jobs_of_several_claims_complete_in_one_call(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kind: str
) -> None:
    """The worker does not send the start of their runs, because it differs."""
    first = await _claimed(queue, fake_worker, kind, 2)
    started = [await queue.get_job(lease.id) for lease in first]
    await asyncio.sleep(0.005)
    await queue.add("n", **options_of(kind, 2))
    [second] = await fake_worker.claim()
    assert second.claimed_at != first[0].claimed_at
    assert (await fake_worker.complete(*first, second)).refused == {}
    for before in started:
        assert before is not None
        after = await queue.get_job(before.id)
        assert after is not None
        assert (after.state, after.processed_at) == ("completed", before.processed_at)
    assert await records(queue, store) == set()
    assert await queue.check() == []


@everywhere
@of_each_kind
@pytest.mark.parametrize("others", [1, 3], ids=["one with a record", "all with a record"])
async def test_jobs_with_a_record_complete_beside_compact_jobs(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kind: str, others: int
) -> None:
    leases = await _claimed(queue, fake_worker, kind, 3)
    for lease in leases[:others]:
        await fake_worker.update(lease, "log", "a line")
    recorded = {lease.id for lease in leases[:others]}
    assert await records(queue, store) == recorded
    assert (await fake_worker.complete(*leases)).refused == {}
    assert await records(queue, store) == recorded
    assert await store.ask("HLEN", f"{fake_worker.base}:compact_runs") == 3 - others
    assert await counts(queue) == {"completed": 3}
    for lease in leases:
        assert [event for event, _ in await job_events(queue, lease.id)] == ["added", "active", "completed"]
        assert await queue.get_job_logs(lease.id) == (["a line"] if lease.id in recorded else [])
    assert await queue.check() == []


@everywhere
@of_each_kind
async def test_a_job_whose_record_was_deleted_by_hand_is_missing_among_compact_jobs(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kind: str
) -> None:
    leases = await _claimed(queue, fake_worker, kind, 3)
    await fake_worker.update(leases[1], "log", "a line")
    await store.ask("DEL", f"{fake_worker.base}:job:{leases[1].id}")
    assert (await fake_worker.complete(*leases)).refused == {1: "missing"}
    assert await counts(queue) == {"completed": 2}
    assert await records(queue, store) == set()
    assert await queue.check() == []


@everywhere
@of_each_kind
async def test_a_removed_compact_job_is_missing_and_the_others_of_the_call_complete(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kind: str
) -> None:
    leases = await _claimed(queue, fake_worker, kind, 3)
    assert await queue.remove(leases[0].id)
    assert (await fake_worker.complete(*leases)).refused == {0: "missing"}
    assert await counts(queue) == {"completed": 2}
    assert await store.ask("HLEN", f"{fake_worker.base}:compact_runs") == 2
    assert await queue.check() == []


@everywhere
@of_each_kind
async def test_compact_jobs_that_are_not_kept_leave_nothing(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kind: str
) -> None:
    leases = await _claimed(queue, fake_worker, kind, 3)
    await fake_worker.update(leases[1], "log", "a line")
    await fake_worker.complete(*leases, retention=[Retention(0, None)] * 3)
    assert await counts(queue) == {}
    assert await store.ask("EXISTS", f"{fake_worker.base}:compact", f"{fake_worker.base}:compact_runs") == 0
    assert await records(queue, store) == set()
    for lease in leases:
        assert [event for event, _ in await job_events(queue, lease.id)] == ["added", "active", "completed"]
    assert await queue.check() == []


@everywhere
@of_each_kind
async def test_a_client_gets_the_result_of_a_compact_job_that_is_not_kept(queue: AnyQueue, kind: str) -> None:
    others = await queue.add_bulk([("n", n, JobOptions(keep_completed=0, **options_of(kind, n))) for n in range(3)])
    job = await queue.add("n", 7, keep_completed=0, **options_of(kind, 3))
    async with worker_of(queue, echo):
        assert await queue.add_and_wait("n", 6, wait_timeout=10, keep_completed=0, **options_of(kind, 4)) == 6
    await worker_of(queue, echo).run(until_empty=True)
    for one in (*others, job):
        assert await queue.get_job(one.id) is None
    assert await queue.check() == []


@pytest.mark.parametrize(
    "command",
    [
        ("HSET", "{base}:job:1", "name", "n", "data", "x", "place", "waiting i"),
        ("ZREM", "{base}:lifo", "1"),
        ("HSET", "{base}:compact_runs", "7", "l1-1 1 1"),
        ("HDEL", "{base}:compact", "1"),
    ],
)
async def test_a_check_finds_damaged_compact_jobs(
    queue: AnyQueue, store: RunningStore, command: tuple[str, ...]
) -> None:
    await queue.add("n", lifo=True)
    await queue.add("n", lifo=True)
    assert await queue.check() == []
    await store.ask(*(word.format(base=f"glide:{{{queue.name}}}") for word in command))
    assert {finding.invariant for finding in await queue.check()} & {"I27", "I2"}
    await queue.obliterate(force=True)
