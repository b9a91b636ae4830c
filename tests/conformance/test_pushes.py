"""Jobs that an add claims for an idle worker and pushes to it: each of them starts once, and none is lost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Unpack

import pytest

from glidemq_async import BatchOptions, JobOptions, Queue
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import CallOptions
from glidemq_async.functions.push import KINDS
from glidemq_async.functions.wakeup import ClaimNow, LeaseGone
from glidemq_async.options.stored_options import ReplyTo, pack_extra
from glidemq_async.storage import Arg, RedisStorage, Storage, Subscription
from tests.support.clocked_queue import Timed
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, Gate, counts, echo, ended, idle, job_events, until, worker_of
from tests.support.idle_worker import IdleWorker, leases_in
from tests.support.recording_storage import Relay
from tests.support.servers import standalone
from tests.support.stores import RunningStore, endpoint_of

everywhere = pytest.mark.everywhere
FULL = 65_536
AWAITED = pack_extra(JobOptions(), ReplyTo("client", 10_000))
OLD = 1_700_000_000_000
"""An instant in the past, ms since 1970."""
WEEK_MS = 604_800_000
COMPACT = [JobOptions(priority=1), JobOptions(lifo=True), JobOptions(key="k")]


# -- a push starts jobs -----------------------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize(
    "options",
    [
        JobOptions(),
        JobOptions(job_id="own"),
        JobOptions(attempts=3),
        JobOptions(ttl=60),
        JobOptions(job_id="own", ttl=60),
    ],
)
async def test_an_added_job_runs_without_a_claim_call(
    queue: AnyQueue, idle_worker: IdleWorker, options: JobOptions
) -> None:
    await idle_worker.wait()
    job = await queue.add("n", {"key": "ä\0\udcff".encode("utf-8", "surrogateescape").hex()}, options)
    [lease] = leases_in(pushed := await idle_worker.pushed())
    assert (pushed.jobs[0].id, pushed.jobs[0].name, pushed.jobs[0].fence) == (job.id, "n", 1)
    assert await counts(queue) == {"active": 1}
    assert await idle_worker.renew(lease) == []
    assert (await idle_worker.complete(lease)).refused == {}
    assert await counts(queue) == {"completed": 1}
    kinds = [kind for kind, _ in await job_events(queue, job.id)]
    assert kinds == ["added", "active", "completed"]
    assert await queue.check() == []


@everywhere
async def test_a_worker_makes_one_call_per_pushed_job(storage: Storage, name: str) -> None:
    relay = Relay(storage)
    async with Queue[Any, Any](name, relay) as queue, worker_of(queue, echo, concurrency=3) as worker:
        await idle(worker)
        for number in range(5):
            await relay.quiet(queue)
            relay.calls.clear()
            assert await (await queue.add("n", number)).result(5) == number
            await relay.quiet(queue)
            assert relay.calls.count("settleAndClaim") == 1


@everywhere
async def test_a_client_that_waits_for_the_result_gets_it(queue: AnyQueue) -> None:
    async with worker_of(queue, echo) as worker:
        await idle(worker)
        for number in range(5):
            assert await queue.add_and_wait("n", number, wait_timeout=5) == number


@everywhere
async def test_a_job_with_a_deadline_runs_without_a_claim_call(storage: Storage, name: str) -> None:
    relay = Relay(storage)
    async with Queue[Any, Any](name, relay) as queue, worker_of(queue, echo, concurrency=3) as worker:
        await idle(worker)
        for number in range(3):
            await relay.quiet(queue)
            relay.calls.clear()
            assert await queue.add_and_wait("n", number, wait_timeout=5) == number
            await relay.quiet(queue)
            assert relay.calls.count("settleAndClaim") == 1


async def test_a_pushed_job_does_not_expire(queue: AnyQueue, store: RunningStore, idle_worker: IdleWorker) -> None:
    await idle_worker.wait()
    await queue.add("n", 1, ttl=60)
    await idle_worker.pushed()
    assert await store.ask("EXISTS", f"{idle_worker.base}:expiry") == 0
    assert await queue.check() == []


async def test_several_workers_share_the_jobs_of_an_add(queue: AnyQueue, store: RunningStore) -> None:
    await queue.connect()
    workers = [IdleWorker(queue, store) for _ in range(3)]
    async with AsyncExitStack() as stack:
        for slots, worker in enumerate(workers, 1):
            await stack.enter_async_context(worker.listening())
            await worker.wait(slots)
        jobs = await queue.add_bulk([("n", number) for number in range(7)])
        got = [[job.id for job in (await worker.pushed()).jobs] for worker in reversed(workers)]
        ids = [job.id for job in jobs]
        assert got == [ids[:3], ids[3:5], ids[5:6]]
        assert await counts(queue) == {"active": 6, "waiting": 1}
        for worker in workers:
            await worker.leave()


async def test_a_worker_that_listens_on_a_replica_is_not_pushed_to() -> None:
    """The server does not count this receiver, so it pushes the job to the next worker. Only that one may start it."""
    async with standalone() as primary, standalone(replica_of=primary) as replica:
        store = RunningStore("primary", primary.url, (endpoint_of(primary),))
        async with (
            Queue[Any, Any]("q", primary.url) as queue,
            RedisStorage(endpoint_of(replica)) as follower,
        ):
            await queue.connect()
            far, near = IdleWorker(queue, store), IdleWorker(queue, store)
            async with far.listening(follower), near.listening():
                for options in ([JobOptions()], [JobOptions()] * 2, *([kind] for kind in COMPACT)):
                    await far.wait(3)
                    await near.wait(2, has_push=True)
                    jobs = await queue.add_bulk([("n", 1, one) for one in options])
                    pushed = await near.pushed()
                    assert [one.id for one in pushed.jobs] == [job.id for job in jobs]
                    assert await far.message() == ClaimNow()
                    await near.complete(*leases_in(pushed))
                await near.leave()
                await far.leave()


# -- who is pushed to, and what ---------------------------------------------------------------------------------------


async def test_a_worker_that_accepts_no_pushes_is_woken(queue: AnyQueue, idle_worker: IdleWorker) -> None:
    await idle_worker.wait(accepts_pushes=False)
    job = await queue.add("n", 1)
    assert await idle_worker.message() == ClaimNow()
    assert [claimed.id for claimed in (await idle_worker.wait()).jobs] == [job.id]


@pytest.mark.parametrize(
    "options", [JobOptions(lock_duration=5), JobOptions(priority=1, ttl=5), JobOptions(key="k", cost=2)]
)
async def test_other_jobs_wake_the_worker(queue: AnyQueue, idle_worker: IdleWorker, options: JobOptions) -> None:
    await idle_worker.wait()
    job = await queue.add("n", 1, options)
    assert await idle_worker.message() == ClaimNow()
    assert [claimed.id for claimed in (await idle_worker.wait()).jobs] == [job.id]


@pytest.mark.parametrize("size", [FULL // 2, 2 * FULL])
async def test_only_small_jobs_are_pushed(queue: AnyQueue, idle_worker: IdleWorker, size: int) -> None:
    await idle_worker.wait()
    job = await queue.add("n", "x" * size)
    if size < FULL:
        assert [pushed.id for pushed in (await idle_worker.pushed()).jobs] == [job.id]
    else:
        assert await idle_worker.message() == ClaimNow()


async def test_older_jobs_start_first(queue: AnyQueue, store: RunningStore, idle_worker: IdleWorker) -> None:
    """A job waits although a worker is idle, for example after a lost wake-up."""
    old = await queue.add("n", 1)
    await idle_worker.wait(slots=0)
    await store.ask("ZADD", f"{idle_worker.base}:idle", 1, idle_worker.name)
    await queue.add("n", 2)
    assert await idle_worker.message() == ClaimNow()
    assert [claimed.id for claimed in (await idle_worker.wait()).jobs] == [old.id]


async def test_released_jobs_start_before_a_pushed_one(
    queue: AnyQueue, store: RunningStore, idle_worker: IdleWorker
) -> None:
    old = await queue.add("n", 1)
    other = FakeWorker(queue, store)
    [lease] = await other.claim()
    await other.settle(lease, "b")
    await idle_worker.wait(slots=0)
    await store.ask("ZADD", f"{idle_worker.base}:idle", 1, idle_worker.name)
    await queue.add("n", 2)
    assert await idle_worker.message() == ClaimNow()
    assert [claimed.id for claimed in (await idle_worker.wait()).jobs] == [old.id]


async def test_a_limited_queue_pushes_nothing(queue: AnyQueue, idle_worker: IdleWorker) -> None:
    await queue.set_global_concurrency(5)
    await idle_worker.wait()
    await queue.add("n", 1)
    assert await idle_worker.message() == ClaimNow()
    assert await counts(queue) == {"waiting": 1}


@pytest.mark.parametrize("number", [1, 2])
async def test_a_paused_queue_pushes_nothing(queue: AnyQueue, idle_worker: IdleWorker, number: int) -> None:
    await queue.pause()
    await idle_worker.wait(number)
    await queue.add_bulk([("n", None)] * number)
    assert await counts(queue) == {"waiting": number}
    await queue.resume()
    assert await idle_worker.message() == ClaimNow()


async def test_the_worker_with_the_timer_is_woken(queue: AnyQueue, idle_worker: IdleWorker) -> None:
    """It might have no free slot after a push, and must pass the timer on."""
    await queue.add("n", 1, delay=60)
    assert (await idle_worker.wait()).due
    await queue.add("n", 2)
    assert await idle_worker.message() == ClaimNow()


# -- nobody receives the push -----------------------------------------------------------------------------------------


@everywhere
async def test_jobs_that_nobody_receives_wait_in_their_order(queue: AnyQueue, store: RunningStore) -> None:
    await queue.connect()
    dead, other = IdleWorker(queue, store), FakeWorker(queue, store)
    await dead.wait(3)
    jobs = await queue.add_bulk([("n", 1), ("n", 2, JobOptions(job_id="own")), ("n", 3)])
    later = await queue.add("n", 4)
    assert await counts(queue) == {"waiting": 4}
    assert [kind for kind, _ in await job_events(queue, "own")] == ["added"]
    assert [lease.id for lease in await other.claim(4)] == [job.id for job in [*jobs, later]]
    assert await queue.check() == []
    await other.leave()


@everywhere
async def test_a_dead_worker_does_not_keep_the_job_from_the_next_one(
    queue: AnyQueue, store: RunningStore, idle_worker: IdleWorker
) -> None:
    dead = IdleWorker(queue, store)
    await dead.wait(5)
    await idle_worker.wait(1)
    job = await queue.add("n", 1)
    assert [pushed.id for pushed in (await idle_worker.pushed()).jobs] == [job.id]
    assert await counts(queue) == {"active": 1}


# -- the push is lost -------------------------------------------------------------------------------------------------


@everywhere
async def test_the_next_call_returns_the_jobs_of_a_lost_push(queue: AnyQueue, idle_worker: IdleWorker) -> None:
    await idle_worker.wait(2)
    lost = await queue.add("n", 1)
    await idle_worker.pushed()
    waiting = await queue.add_bulk([("n", 2), ("n", 3)])
    reply = await idle_worker.wait(2)
    assert [job.id for job in reply.jobs] == [waiting[0].id, lost.id]
    # The reply is lost too, and the repeated call returns the same jobs.
    assert {job.entry for job in (await idle_worker.repeat()).jobs} == {job.entry for job in reply.jobs}
    assert await counts(queue) == {"active": 2, "waiting": 1}


async def test_a_push_that_has_arrived_is_not_returned(queue: AnyQueue, idle_worker: IdleWorker) -> None:
    await idle_worker.wait(2)
    await queue.add("n", 1)
    await idle_worker.pushed()
    assert (await idle_worker.wait(1, has_push=True)).jobs == []
    assert (await idle_worker.wait(1)).jobs == []


async def test_a_lost_push_whose_job_was_removed_is_not_returned(queue: AnyQueue, idle_worker: IdleWorker) -> None:
    await idle_worker.wait(2)
    job = await queue.add("n", 1)
    await idle_worker.pushed()
    await job.remove()
    assert isinstance(await idle_worker.message(), LeaseGone)
    assert (await idle_worker.wait(1)).jobs == []
    other = await queue.add("n", 2)
    assert [pushed.id for pushed in (await idle_worker.pushed()).jobs] == [other.id]


@everywhere
async def test_a_worker_that_dies_with_a_push_stalls_its_job(
    queue: AnyQueue, store: RunningStore, idle_worker: IdleWorker
) -> None:
    await idle_worker.wait()
    job = await queue.add("n", 1)
    [lease] = leases_in(await idle_worker.pushed())
    await idle_worker.vanish(lease)
    assert await FakeWorker(queue, store).sweep() == [job.id]
    await job.refresh()
    assert (job.state, job.stalled_count) == ("waiting", 1)
    assert (await idle_worker.complete(lease)).refused == {0: "stale"}
    assert await queue.check() == []


async def test_a_push_that_never_reached_a_living_worker_is_not_a_stall(timed: Timed) -> None:
    await timed.queue.connect()
    idle_worker = IdleWorker(timed.queue, timed.store)
    async with idle_worker.listening():
        await idle_worker.wait(lock_ms=1_000)
        job = await timed.queue.add("n", 1)
        [lease] = leases_in(await idle_worker.pushed())
        await timed.clock.advance(600)
        await idle_worker.renew()  # more than half a lease later, and without the run
        await idle_worker.vanish(lease)
        await timed.fake_worker.sweep()
        await job.refresh()
        assert (job.state, job.stalled_count) == ("waiting", 0)
    await idle_worker.leave()


async def test_a_sweep_reclaims_a_pushed_job_at_the_end_of_the_lease_of_its_worker(
    queue: AnyQueue, store: RunningStore, idle_worker: IdleWorker
) -> None:
    """The shortest lease of the queue includes pushed runs, because sweeps pass over all shorter idle times."""
    other = FakeWorker(queue, store)
    await queue.add("n", 0)
    await other.claim(lock_ms=600_000)
    await idle_worker.wait(lock_ms=2_000)
    job = await queue.add("n", 1)
    [lease] = leases_in(await idle_worker.pushed())
    await idle_worker.vanish(lease, for_ms=3_000)
    assert await other.sweep() == [job.id]
    await other.leave()


# -- a worker and its messages ----------------------------------------------------------------------------------------


async def test_a_handler_that_waits_delays_neither_its_worker_nor_the_next_job(storage: Storage, name: str) -> None:
    gate = Gate()
    async with Queue[Any, Any](name, storage) as queue, worker_of(queue, gate, concurrency=2) as worker:
        await idle(worker)
        jobs = [await queue.add("n", number) for number in range(2)]
        assert {(await gate.running()).id for _ in jobs} == {job.id for job in jobs}
        gate.release()
        for job in jobs:
            assert (await ended(job)).state == "completed"
        assert await queue.check() == []


class Noting(Relay):
    """A storage that notes which calls of these functions ask for their messages first."""

    def __init__(self, inner: Storage, *functions: str) -> None:
        super().__init__(inner)
        self._functions = functions
        self.asked: list[bool] = []

    def has_noted(self, calls: int) -> bool:
        return len(self.asked) == calls

    async def call(self, function: str, key: str, args: Sequence[Arg], **options: Unpack[CallOptions]) -> object:
        if function in self._functions:
            self.asked.append(options.get("messages_first", False))
        return await super().call(function, key, args, **options)


@everywhere
async def test_an_add_after_a_pushed_one_asks_for_its_message_before_its_reply(storage: Storage, name: str) -> None:
    relay = Noting(storage, "addPlain", "addJob")
    async with Queue[Any, Any](name, relay) as queue:
        await queue.add("n", 0)
        async with worker_of(queue, echo, concurrency=2) as worker:
            for number in range(2):
                await idle(worker)
                assert await (await queue.add("n", number)).result(5) == number
            for number in range(2):
                await idle(worker)
                assert await queue.add_and_wait("n", number, wait_timeout=5) == number
        await queue.add("n", 1)
        await queue.add("n", 2)
    assert relay.asked == [False, False, True, True, True, True, False]


@everywhere
async def test_a_call_after_one_that_has_sent_a_result_asks_for_its_message_before_its_reply(
    storage: Storage, name: str
) -> None:
    relay = Noting(storage, "settleAndClaim")
    async with (
        Queue[Any, Any](name, storage) as queue,
        Queue[Any, Any](name, relay) as other,
        worker_of(other, echo) as worker,
    ):
        await idle(worker)
        relay.asked.clear()
        for calls in range(1, 5):
            if calls <= 2:
                assert await queue.add_and_wait("n", calls, wait_timeout=5) == calls
            else:
                await queue.add("n", calls)
            await until(partial(relay.has_noted, calls))
            await idle(worker)
    assert relay.asked[:4] == [False, True, True, False]


class Interrupted(Relay):
    """A storage whose messages a test can drop or keep back."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.kept: list[Callable[[], None]] | None = None

    async def subscribe(
        self, key: str, channel: str, on_message: Callable[[bytes], None], on_change: Callable[[bool], None]
    ) -> Subscription:
        def deliver(message: bytes) -> None:
            if self.kept is None or message[:1] not in KINDS:
                on_message(message)
            else:
                self.kept.append(lambda: on_message(message))

        return await super().subscribe(key, channel, deliver, on_change)


async def test_a_push_that_arrives_after_the_next_call_starts_nothing(storage: Storage, name: str) -> None:
    relay = Interrupted(storage)
    runs: list[str] = []

    async def note(job: AnyJob) -> None:
        runs.append(job.id)

    async with Queue[Any, Any](name, relay) as queue, worker_of(queue, note, concurrency=2) as worker:
        await idle(worker)
        relay.kept = []
        job = await queue.add("n", 1)
        await until(lambda: bool(relay.kept))
        worker._session.loop.wake()  # type: ignore[union-attr]
        await ended(job)
        assert runs == [job.id]
        for deliver in relay.kept:
            deliver()
        await relay.quiet(queue)
        assert runs == [job.id]
        relay.kept = None
        assert (await ended(await queue.add("n", 2))).state == "completed"
        assert await queue.check() == []


async def test_a_poll_finds_the_job_of_a_lost_push(storage: Storage, name: str) -> None:
    relay = Interrupted(storage)
    async with Queue[Any, Any](name, relay) as queue, worker_of(queue, echo, poll_interval=0.2) as worker:
        await idle(worker)
        relay.kept = []
        assert await (await queue.add("n", 1)).result(5) == 1
        assert relay.kept
        assert (await queue.get_job_counts())["completed"] == 1


async def test_a_push_for_a_call_in_flight_waits_for_its_reply(storage: Storage, name: str) -> None:
    relay = Relay(storage)
    replied, go_on = asyncio.Event(), asyncio.Event()

    async def hold(function: str, args: Sequence[Any], reply: Any) -> None:
        if function == "settleAndClaim" and not reply[2] and "p" in str(args[5]):
            replied.set()
            await go_on.wait()

    relay.after_call = hold
    gate = Gate()
    async with Queue[Any, Any](name, relay) as queue, worker_of(queue, gate):
        await asyncio.wait_for(replied.wait(), 5)
        job = await queue.add("n", 1)
        relay.after_call = None
        assert await counts(queue) == {"active": 1}
        go_on.set()
        assert (await gate.running()).id == job.id
        gate.release()
        assert (await ended(job)).state == "completed"


async def test_a_worker_that_stops_releases_a_pushed_job(storage: Storage, name: str) -> None:
    relay = Interrupted(storage)
    async with Queue[Any, Any](name, relay) as queue:
        worker = worker_of(queue, echo)
        await worker.start()
        await idle(worker)
        relay.kept = []
        job = await queue.add("n", 1)
        await until(lambda: bool(relay.kept))
        await worker.close()
        await job.refresh()
        assert (job.state, job.stalled_count) == ("waiting", 0)


async def test_a_batch_worker_is_not_pushed_to(queue: AnyQueue) -> None:
    sizes: list[int] = []

    async def run(jobs: Any) -> list[None]:
        sizes.append(len(jobs))
        return [None] * len(jobs)

    async with worker_of(queue, run, batch=BatchOptions(size=3, wait=0.05)) as worker:
        await idle(worker)
        for job in await queue.add_bulk([("n", number) for number in range(3)]):
            await job.result(5)
    assert sizes == [3]


@everywhere
async def test_the_replies_to_requests_are_kept_long_enough(
    queue: AnyQueue, store: RunningStore, idle_worker: IdleWorker
) -> None:
    base = f"glide:{{{queue.name}}}"
    incarnation = await store.ask("HGET", f"{base}:meta2", "incarnation")
    assert isinstance(incarnation, bytes)
    adds: dict[str, tuple[str, Sequence[Arg], bytes]] = {
        "plain": (
            "addPlain",
            (incarnation, "n", "", 1, b"\x01"),
            b"1 \x94\xcf" + OLD.to_bytes(8, "big") + b"\xa11\xa0\x01",
        ),
        "awaited": ("addJob", (incarnation, "n", b"\x01", AWAITED), b"1 \xaf%d 1" % OLD),
    }

    async def left(channel: str) -> int:
        """Return in how many ms the stored reply of a channel expires."""
        ms = await store.ask("PTTL", f"{base}:call:{channel}")
        assert isinstance(ms, int)
        return ms

    await idle_worker.wait()
    for channel, (function, args, old) in adds.items():
        for number in (1, 2, 3):
            await queue.storage.call(function, base, (channel, number, *args))
            assert 600_000 <= await left(channel) <= 700_000
            [lease] = leases_in(await idle_worker.pushed())
            await idle_worker.settle_and_wait(lease, has_push=True)
            assert WEEK_MS <= await left(idle_worker.name) <= WEEK_MS + 100_000
            if number == 1:
                # The next call finds a reply of an earlier time, which expires soon.
                await store.ask("SET", f"{base}:call:{channel}", old, "PX", 60_000)
    await Functions(queue.storage, base).job_waiters.confirm("client", ["4", "5", "6"])


@everywhere
@pytest.mark.parametrize("function", ["addPlain", "addJob"])
async def test_a_repeated_add_of_a_pushed_job_gets_the_same_reply(
    queue: AnyQueue, store: RunningStore, idle_worker: IdleWorker, function: str
) -> None:
    base = f"glide:{{{queue.name}}}"
    incarnation = await store.ask("HGET", f"{base}:meta2", "incarnation")
    assert isinstance(incarnation, bytes)
    jobs: dict[str, Sequence[Arg]] = {
        "addPlain": (incarnation, "n", "", 1, b"\x01"),
        "addJob": (incarnation, "n", b"\x01", AWAITED),
    }
    await idle_worker.wait()
    for number, job_id in ((1, b"1"), (2, b"2")):
        args = ("client", number, *jobs[function])
        reply = await queue.storage.call(function, base, args)
        if isinstance(reply, bytes):
            assert re.fullmatch(rb"\d{13} " + job_id, reply)
        else:
            assert isinstance(reply, list)
            assert reply[1:3] == [job_id, b""]
        assert await queue.storage.call(function, base, args) == reply
        [lease] = leases_in(await idle_worker.pushed())
        await idle_worker.settle_and_wait(lease, has_push=True)
    assert await counts(queue) == {"completed": 2}
    await Functions(queue.storage, base).job_waiters.confirm("client", ["1", "2"])
