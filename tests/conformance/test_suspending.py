"""Suspended jobs hold no slot, run again for a signal, a timeout or an operator, and get each signal once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from glidemq_async import (
    BatchOptions,
    DuplicateSignal,
    Encryption,
    JobFailed,
    JobNotFound,
    JobStateError,
    MailboxFull,
    PayloadTooLarge,
    Queue,
    RetryLater,
    Signal,
    errors,
    generate_key,
)
from glidemq_async.functions.outcomes import Suspended
from glidemq_async.storage import Storage
from glidemq_async.stored.hand_over import Waits
from tests.support.clocked_queue import HOUR, MINUTE, SECOND, Timed
from tests.support.fake_worker import FakeWorker, Lease
from tests.support.helpers import AnyJob, AnyQueue, counts, echo, ended, job_events, soon, worker_of
from tests.support.stores import RunningStore

ANY = Waits("", None)


def seen(signals: Iterable[Signal]) -> list[tuple[str, Any]]:
    return [(one.name, one.data) for one in signals]


async def approval(job: AnyJob) -> Any:
    """Wait for a signal, and return what resumed the job."""
    if job.resumed_by is None:
        await job.suspend("waits for approval", signals=["approved", "rejected"])
    return [job.resumed_by, seen(job.signals)]


async def reaches(job: AnyJob, state: str) -> None:
    """Wait until a job is in a state."""
    async with asyncio.timeout(10):
        async for update in job.watch():
            if update.state == state:
                break
    await job.refresh()


async def suspended(job: AnyJob) -> None:
    """Wait until a job is suspended."""
    await reaches(job, "suspended")


class Runs:
    """A worker that a test drives, with the outcomes of signals."""

    def __init__(self, queue: AnyQueue, store: RunningStore) -> None:
        self.fake = FakeWorker(queue, store)

    async def claim(self) -> Lease:
        [lease] = await self.fake.claim()
        return lease

    async def suspend(self, lease: Lease, waits: Waits = ANY, timeout_ms: int | None = None, step: str = "") -> None:
        reply = await self.fake.settle_as(lease, Suspended(waits.stored(), timeout_ms, step))
        assert reply.refused == {}


@pytest.fixture
def runs(queue: AnyQueue, store: RunningStore) -> Runs:
    return Runs(queue, store)


@pytest.mark.everywhere
async def test_a_signal_resumes_a_suspended_job(queue: AnyQueue) -> None:
    async with worker_of(queue, approval, concurrency=1):
        job = await queue.add("n", 1)
        await suspended(job)
        assert await counts(queue) == {"suspended": 1}
        # The only slot of the worker is free.
        other = await queue.add("other", 2, job_id="other")
        await suspended(other)
        assert await queue.signal(job.id, "approved", {"by": "ada"}) is True
        assert await job.result(10) == ["signal", [["approved", {"by": "ada"}]]]
        assert await other.signal("rejected") is True
        assert await other.result(10) == ["signal", [["rejected", None]]]
    await job.refresh()
    assert (job.attempts_made, job.fence, job.resumed_by, job.signals) == (1, 2, None, ())
    assert await job_events(queue, job.id) == [
        ("added", "n"),
        ("active", ""),
        ("suspended", ""),
        ("signalled", "approved"),
        ("waiting", "signal"),
        ("active", ""),
        ("completed", ""),
    ]


@pytest.mark.parametrize("state", ["waiting", "delayed", "active", "prioritized", "key-waiting"])
async def test_an_early_signal_waits_for_the_suspension(queue: AnyQueue, state: str) -> None:
    options: dict[str, Any] = {"delayed": {"delay": 60}, "prioritized": {"priority": 3}, "key-waiting": {"key": "k"}}
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def handler(job: AnyJob) -> Any:
        if job.fence == 1:
            entered.set()
            await go_on.wait()
        return await approval(job)

    job = await queue.add("n", 1, **options.get(state, {}))
    if state != "active":
        assert await queue.signal(job.id, "approved", 1) is False
    async with worker_of(queue, handler):
        if state == "delayed":
            await job.promote()
        await soon(entered.wait())
        assert await queue.signal(job.id, "ignored", 2) is False
        assert await queue.signal(job.id, "rejected", 3) is False
        go_on.set()
        expected = [["rejected", 3]] if state == "active" else [["approved", 1], ["rejected", 3]]
        assert await job.result(10) == ["signal", expected]
    assert await queue.check() == []


async def test_a_job_suspends_many_times_and_gets_each_signal_once(queue: AnyQueue) -> None:
    got: list[list[tuple[str, Any]]] = []

    async def chat(job: AnyJob) -> int:
        got.append(seen(job.signals))
        if any(one.name == "end" for one in job.signals):
            return len(got)
        return await job.suspend()

    job = await queue.add("n")
    async with worker_of(queue, chat):
        for number in range(20):
            await queue.signal(job.id, "say", number)
        await queue.signal(job.id, "end")
        await job.result(10)
    said = [data for signals in got for name, data in signals if name == "say"]
    assert said == list(range(20))


async def test_every_run_gets_the_signals_until_the_job_suspends_again(queue: AnyQueue) -> None:
    got: list[tuple[str | None, list[tuple[str, Any]], str | None]] = []

    async def handler(job: AnyJob) -> str:
        got.append((job.resumed_by, seen(job.signals), job.step_name))
        match len(got):
            case 1:
                return await job.suspend(signals=["a"], step="one")
            case 2:
                raise ValueError("a failed run")
            case 3:
                raise RetryLater(0)
            case 4:
                return await job.move_to_delayed(0, step="two")
            case 5:
                return await job.suspend(signals=[], timeout=0)
            case _:
                return "done"

    job = await queue.add("n", attempts=2)
    async with worker_of(queue, handler):
        await suspended(job)
        await queue.signal(job.id, "a", 1)
        assert await job.result(10) == "done"
    again = ("signal", [("a", 1)])
    assert got == [(None, [], None), *[(*again, "one")] * 3, (*again, "two"), ("timeout", [], "two")]


async def test_a_lost_lease_hands_the_signals_over_again(queue: AnyQueue, runs: Runs) -> None:
    job = await queue.add("n")
    await runs.suspend(await runs.claim())
    await queue.signal(job.id, "a", 1)
    lease = await runs.claim()
    repeated = await runs.fake.repeat()
    assert [one.history.hand_over for one in repeated.jobs if one.history] != [None]
    await runs.fake.vanish(lease)
    assert await runs.fake.sweep() == [job.id]

    async def handler(again: AnyJob) -> Any:
        return seen(again.signals)

    async with worker_of(queue, handler):
        assert await job.result(10) == [["a", 1]]
    await runs.fake.leave()


async def test_timeouts_follow_the_servers_clock(timed: Timed) -> None:
    queue, runs = timed.queue, Runs(timed.queue, timed.store)
    late, never = await queue.add("late"), await queue.add("never")
    for timeout in (HOUR, None):
        await runs.suspend(await runs.claim(), Waits("why", ("a", "b")), timeout)
    await late.refresh()
    assert late.suspension is not None
    assert (late.suspension.reason, late.suspension.signals) == ("why", ("a", "b"))
    assert late.suspension.deadline == late.due_at
    await never.refresh()
    assert never.suspension is not None
    assert never.suspension.deadline is None
    await timed.clock.advance(HOUR - MINUTE)
    assert await timed.run() == []
    await timed.clock.advance(MINUTE + SECOND)
    found = await timed.fake_worker.claim(10)
    assert [lease.name for lease in found] == ["late"]
    await late.refresh()
    assert (late.resumed_by, late.signals) == ("timeout", ())
    assert await counts(queue) == {"suspended": 1, "active": 1}
    assert await queue.check() == []


async def test_an_idle_worker_wakes_up_for_a_timeout(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> Any:
        if job.resumed_by is None:
            await job.suspend(timeout=0.2)
        return job.resumed_by

    async with worker_of(queue, handler):
        # The worker does not poll.
        assert await (await queue.add("n")).result(10) == "timeout"


async def test_an_operator_resumes_a_job(queue: AnyQueue) -> None:
    async with worker_of(queue, approval):
        job = await queue.add("n")
        await suspended(job)
        await queue.resume_job(job.id)
        assert await job.result(10) == ["operator", []]
        with pytest.raises(JobStateError, match="only a suspended job can be resumed"):
            await job.resume()
    with pytest.raises(JobNotFound):
        await queue.resume_job("missing")


async def test_signals_to_jobs_that_cannot_receive_them(queue: AnyQueue) -> None:
    job = await queue.add("n")
    async with worker_of(queue, echo):
        await job.result(10)
    with pytest.raises(JobStateError, match="a job that has ended receives no signals"):
        await queue.signal(job.id, "a")
    with pytest.raises(JobNotFound):
        await queue.signal("missing", "a")
    waiting = await queue.add("n")
    with pytest.raises(PayloadTooLarge):
        await queue.signal(waiting.id, "a", "x" * 70_000)
    for name, error in (("", ValueError), ("a\x1fb", ValueError), (1, TypeError)):
        with pytest.raises(error):
            await queue.signal(waiting.id, name)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ttl must be more than zero"):
        await queue.signal(waiting.id, "a", ttl=0)


async def test_a_mailbox_is_bounded(queue: AnyQueue) -> None:
    job = await queue.add("n")
    for number in range(256):
        await queue.signal(job.id, "a", number)
    with pytest.raises(MailboxFull, match="256 signals"):
        await queue.signal(job.id, "a")
    large = await queue.add("n")
    for _ in range(4):
        await queue.signal(large.id, "a", b"x" * 60_000)
    with pytest.raises(MailboxFull):
        await queue.signal(large.id, "a", b"x" * 60_000)
    assert [one.data for one in await queue.get_mailbox(job.id)] == list(range(256))
    assert await queue.check() == []


async def test_a_job_accepts_one_signal_with_the_same_once(queue: AnyQueue) -> None:
    job = await queue.add("n")
    assert await queue.signal(job.id, "a", 1, once="delivery 1") is False
    with pytest.raises(DuplicateSignal, match="delivery 1"):
        await queue.signal(job.id, "a", 1, once="delivery 1")
    assert await job.signal("a", 2, once="delivery") is False
    assert await job.signal("a", 3) is False
    assert [one.data for one in await queue.get_mailbox(job.id)] == [1, 2, 3]
    for number in range(120):
        await queue.signal(job.id, "short", once=f"{number} {'x' * 400}", ttl=0.001)
    with pytest.raises(DuplicateSignal):
        await queue.signal(job.id, "short", once=f"119 {'x' * 400}")
    # The oldest texts are forgotten.
    assert await queue.signal(job.id, "a", 4, once="delivery 1") is False
    assert await queue.check() == []


async def test_an_expired_signal_is_forgotten(timed: Timed) -> None:
    queue, runs = timed.queue, Runs(timed.queue, timed.store)
    job = await queue.add("n")
    for _ in range(255):
        await queue.signal(job.id, "short", ttl=60)
    await queue.signal(job.id, "long", ttl=timedelta(hours=1))
    with pytest.raises(MailboxFull):
        await queue.signal(job.id, "more")
    await timed.clock.advance(2 * MINUTE)
    assert seen(await queue.get_mailbox(job.id)) == [("long", None)]
    assert await queue.signal(job.id, "more") is False
    await runs.suspend(await runs.claim())
    await job.refresh()
    assert seen(job.signals) == [("long", None), ("more", None)]
    assert await queue.check() == []


@pytest.mark.parametrize("how", ["remove", "revoke", "clean", "drain", "obliterate"])
async def test_a_suspended_job_can_be_ended(queue: AnyQueue, runs: Runs, store: RunningStore, how: str) -> None:
    job = await queue.add("n")
    await queue.signal(job.id, "other", 1)
    await runs.suspend(await runs.claim(), Waits("", ("a",)))
    [listed] = await queue.get_jobs("suspended")
    assert (listed.id, [one.id for one in await queue.search_jobs("suspended")]) == (job.id, [job.id])
    match how:
        case "remove":
            await job.remove()
        case "revoke":
            assert await job.revoke() is True
            with pytest.raises(JobFailed, match="revoked"):
                await job.result(10)
        case "clean":
            assert await queue.clean(state="suspended") == [job.id]
        case "drain":
            assert await queue.drain() == 0
            assert await queue.drain(delayed=True) == 1
        case _:
            await queue.obliterate()
    assert not [key for key in await store.keys() if "signal" in key or "suspended" in key]
    assert await queue.check() == []
    await runs.fake.leave()


async def test_a_suspended_job_frees_its_key_and_returns_to_its_place(queue: AnyQueue, runs: Runs) -> None:
    first, second, third = [await queue.add(name, key="k") for name in "abc"]
    await runs.suspend(await runs.claim())
    lease = await runs.claim()
    assert lease.id == second.id
    await queue.signal(first.id, "go")
    assert await runs.fake.claim() == []
    await runs.fake.settle(lease)
    # The key starts its jobs in the order of their adds.
    lease = await runs.claim()
    assert lease.id == first.id
    await runs.fake.settle(lease)
    assert (await runs.claim()).id == third.id
    await runs.fake.leave()


async def test_a_suspended_job_frees_the_limit_of_the_queue(queue: AnyQueue, runs: Runs) -> None:
    await queue.set_global_concurrency(1)
    first, second = await queue.add("a"), await queue.add("b")
    lease = await runs.claim()
    assert await runs.fake.claim() == []
    await runs.suspend(lease)
    assert (await runs.claim()).id == second.id
    await queue.signal(first.id, "go")
    assert await runs.fake.claim() == []
    await runs.fake.leave()


async def test_a_resumed_job_waits_while_the_queue_is_paused(queue: AnyQueue, runs: Runs) -> None:
    job = await queue.add("n", priority=2)
    await runs.suspend(await runs.claim())
    await queue.pause()
    assert await queue.signal(job.id, "go") is True
    assert await job.get_state() == "prioritized"
    assert await runs.fake.claim() == []
    await queue.resume()
    assert (await runs.claim()).id == job.id
    await runs.fake.leave()


async def test_other_operations_refuse_a_suspended_job(queue: AnyQueue, runs: Runs) -> None:
    job = await queue.add("n")
    await runs.suspend(await runs.claim())
    for operation in (job.promote(), job.retry(), job.change_priority(1), job.change_delay(1)):
        with pytest.raises(JobStateError, match="suspended"):
            await operation
    duplicate = await queue.add("n", job_id=job.id)
    assert duplicate.outcome == "duplicate"
    await runs.fake.leave()


async def test_a_revoked_job_does_not_suspend(queue: AnyQueue, runs: Runs) -> None:
    job = await queue.add("n")
    lease = await runs.claim()
    assert await job.revoke() is False
    await runs.suspend(lease)
    await job.refresh()
    assert (job.state, job.failure_cause) == ("failed", "revoked")
    await runs.fake.leave()


async def test_a_run_that_lost_its_lease_does_not_suspend_its_job(queue: AnyQueue, runs: Runs) -> None:
    job = await queue.add("n")
    lost = await runs.claim()
    await runs.fake.vanish(lost)
    assert await runs.fake.sweep() == [job.id]
    lease = await runs.claim()
    reply = await runs.fake.settle_as(lost, Suspended(ANY.stored(), None))
    assert reply.refused == {0: "stale"}
    assert await job.get_state() == "active"
    assert await runs.fake.settle(lease) is None
    await runs.fake.leave()


async def test_move_to_delayed_continues_with_its_step(timed: Timed) -> None:
    steps: list[str | None] = []
    until = datetime.now(UTC) + timedelta(hours=1)

    async def handler(job: AnyJob) -> str:
        steps.append(job.step_name)
        if job.step_name is None:
            await job.move_to_delayed(until, step="ship")
        return "shipped"

    job = await timed.queue.add("n")
    async with worker_of(timed.queue, handler):
        await reaches(job, "delayed")
        assert job.due_at is not None
        assert abs(job.due_at - until) < timedelta(milliseconds=2)
        assert job.step_name == "ship"
        await job.promote()
        assert await job.result(10) == "shipped"
    await job.refresh()
    assert (steps, job.attempts_made) == ([None, "ship"], 1)


async def test_only_a_handler_can_suspend(queue: AnyQueue) -> None:
    job = await queue.add("n")
    with pytest.raises(JobStateError, match="not running here"):
        await job.suspend()
    with pytest.raises(JobStateError, match="not running here"):
        await job.move_to_delayed(1)
    with pytest.raises(ValueError, match="nothing can resume the job"):
        await job.suspend(signals=[])
    with pytest.raises(TypeError, match="not one str"):
        await job.suspend(signals="approved")
    with pytest.raises(ValueError, match="at most 100 names"):
        await job.suspend(signals=[str(number) for number in range(101)])


async def test_codecs_apply_to_signals(storage: Storage, store: RunningStore) -> None:
    async with Queue[Any, Any]("sealed", storage, codecs=[Encryption({"k": generate_key()})]) as queue:
        job = await queue.add("n")
        await queue.signal(job.id, "a", "a secret")
        stored = await store.ask("LRANGE", f"glide:{{sealed}}:signals:{job.id}", 0, -1)
        assert b"a secret" not in repr(stored).encode()
        assert seen(await queue.get_mailbox(job.id)) == [("a", "a secret")]


async def test_the_threads_and_the_blocking_methods(queue: AnyQueue) -> None:
    def handler(job: AnyJob) -> Any:
        if not job.signals:
            job.sync.suspend(timeout=60)
        return seen(job.signals)

    async with worker_of(queue, handler):
        job = await queue.add("n")
        await suspended(job)
        assert await queue.signal(job.id, "a", 1)
        assert await job.result(10) == [["a", 1]]
    assert (await ended(job)).attempts_made == 1


async def memory(store: RunningStore) -> int:
    info = cast("bytes", await store.ask("INFO", "memory")).decode()
    return int(info.partition("used_memory:")[2].split()[0])


async def test_a_suspended_job_needs_less_than_1_kib_of_memory(queue: AnyQueue, store: RunningStore) -> None:
    jobs = 3_000
    await queue.connect()
    fake, before = FakeWorker(queue, store), await memory(store)
    await queue.add_bulk([("n", number) for number in range(jobs)])
    waits = Waits("waits for approval", ("approved", "rejected"))
    while leases := await fake.claim(500):
        rest = [(lease, Suspended(waits.stored(), 3_600_000)) for lease in leases]
        while rest:
            rest = rest[(await fake.settle_all(rest)).settled :]
    assert await counts(queue) == {"suspended": jobs}
    assert (await memory(store) - before) / jobs < 1_024


async def test_one_job_of_a_batch_can_be_suspended(queue: AnyQueue) -> None:
    async def process(jobs: list[AnyJob]) -> list[object]:
        return [errors.Suspended("waits") if job.data == 1 and not job.signals else job.data for job in jobs]

    first, second = await queue.add("n", 1), await queue.add("n", 2)
    async with worker_of(queue, cast("Any", process), batch=BatchOptions(size=2, wait=1)):
        assert await second.result(10) == 2
        assert await first.get_state() == "suspended"
        assert await first.signal("go") is True
        assert await first.result(10) == 1
