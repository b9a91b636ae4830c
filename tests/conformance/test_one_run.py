"""A call with the run of one job has the same effect as the general path of the same call.

Each test makes the same calls in two queues. In one of them the worker asks to verify its leases, so the server
executes its call the general path. The stored data and the replies must then be equal. The instructions that CI counts
show that the other call takes the short path.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple, cast

import pytest

from glidemq_async import JobOptions, Queue
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.outcomes import Retention
from glidemq_async.functions.settle import SettleReply
from glidemq_async.options.stored_options import ReplyTo, pack_extra
from glidemq_async.storage import Storage
from glidemq_async.storage.protocol import FunctionError
from tests.support.fake_worker import FakeWorker, Lease, leases_of
from tests.support.helpers import AnyQueue, counts
from tests.support.idle_worker import IdleWorker, leases_in
from tests.support.stores import RunningStore

everywhere = pytest.mark.everywhere
CLIENT: Final = "client"
TIME_IN_ENTRY: Final = re.compile(r"\d{13}(-\d+)?")
"""The time in the id of an entry, or in the token of a run in `runs` with the number that follows it."""
KEPT: Final = 1000
"""How many completed jobs a queue keeps unless its options say otherwise."""
SLACK: Final = 15
"""How many more a call that ends few jobs may leave."""
TURN: Final = 8
"""Every TURN-th end in a minute releases held jobs and applies the retention on the short path."""
SMALL: Final = 10
"""A number of jobs that one call adds, claims or completes in its time."""


async def complete_jobs(queue: AnyQueue, store: RunningStore, number: int) -> None:
    """Add jobs and let a worker complete them, a few in each call."""
    worker = FakeWorker(queue, store)
    for done in range(0, number, SMALL):
        jobs = min(SMALL, number - done)
        await queue.add_bulk([("n", None)] * jobs)
        await worker.complete(*await worker.claim(jobs))


class Scene(NamedTuple):
    """A queue, a worker, and the lease of its job."""

    queue: AnyQueue
    store: RunningStore
    worker: IdleWorker
    lease: Lease

    @property
    def base(self) -> str:
        return self.worker.base

    @property
    def functions(self) -> Functions:
        return Functions(self.queue.storage, self.base)

    async def complete_others(self, number: int) -> None:
        """Add jobs and let another worker complete them."""
        await complete_jobs(self.queue, self.store, number)

    async def set_ends(self, number: int) -> None:
        """Set the number of jobs that have completed in this minute, and in the next one, which may begin soon.

        The numbers of the minutes before are removed, because earlier jobs may have ended in two minutes.
        """
        seconds, _ = cast("list[bytes]", await self.store.ask("TIME"))
        now = int(seconds) // 60
        for hour in {(now - 1) // 60, now // 60}:
            key = f"{self.base}:metrics:completed:{hour}"
            for field in cast("list[bytes]", await self.store.ask("HKEYS", key)):
                if field.endswith(b":n"):
                    await self.store.ask("HDEL", key, field)
        for minute in (now, now + 1):
            key = f"{self.base}:metrics:completed:{minute // 60}"
            await self.store.ask("HSET", key, f"{minute % 60}:n", number)

    async def forget_clients(self) -> None:
        """Let no client wait any more."""
        waiters = cast("list[bytes]", await self.store.ask("HKEYS", f"{self.base}:waiters"))
        if waiters:
            await self.functions.job_waiters.remove_many([waiter.decode() for waiter in waiters], CLIENT)


Prepare = Callable[[Scene], Awaitable[Lease | None]]
"""Prepares the queue before the run ends. Returns the lease that the worker names instead of its own, or None."""


class Scenario(NamedTuple):
    """How the worker gets the job, and what happens before its run ends."""

    prepare: Prepare
    is_pushed: bool = True
    accepts_pushes: bool = True
    earlier: int = 0
    """How many jobs have completed before."""


async def nothing(_scene: Scene) -> None:
    """Let the job be the only one of the queue."""


def waiting(number: int, options: JobOptions | None = None) -> Prepare:
    """Let jobs wait."""

    async def prepare(scene: Scene) -> None:
        await scene.queue.add_bulk([("n", {"number": n}, options or JobOptions()) for n in range(number)])

    return prepare


async def mixed(scene: Scene) -> None:
    """Let plain jobs wait before and behind one that has a record."""
    await scene.queue.add("n", 1)
    await scene.queue.add("n", 2, job_id="own")
    await scene.queue.add("n", 3)


async def awaited(scene: Scene) -> None:
    """Let a client wait for the result."""
    await scene.functions.job_waiters.add(scene.lease.id, CLIENT)


async def awaited_after_others(scene: Scene) -> None:
    """Let a client wait for the result. Hold the replies of earlier jobs, and one of them for long enough."""
    await scene.complete_others(SMALL)
    extra = pack_extra(JobOptions(), ReplyTo(CLIENT))
    await scene.functions.add.jobs([AddRequest("", "n", b"\xc0", b"", extra)] * 3)
    other = FakeWorker(scene.queue, scene.store)
    leases = await other.claim(3)
    await other.complete(*leases)
    await scene.store.ask("ZADD", f"{scene.base}:held", 1, leases[0].id)
    await awaited(scene)
    await scene.set_ends(TURN - 1)


async def late(scene: Scene) -> None:
    """Let many younger jobs complete, so that retention has already passed the number of this job."""
    await scene.complete_others(KEPT + 100)


async def long_ago(scene: Scene) -> Lease:
    """Let the run have begun half a day ago."""
    assert isinstance(scene.lease.plain_since, int)
    return scene.lease._replace(plain_since=scene.lease.plain_since - 43_200_000)


async def after_a_lost_call(scene: Scene) -> None:
    """Let the server not know the previous call of the worker, as after a failover."""
    scene.worker.channel.next()


async def recovered(scene: Scene) -> None:
    """Let a sweep take the lease of the run away."""
    await scene.worker.vanish(scene.lease)
    await FakeWorker(scene.queue, scene.store).sweep()


async def removed(scene: Scene) -> None:
    """Remove the record and the entry of the job by hand."""
    await scene.store.ask("XDEL", f"{scene.base}:fifo", scene.lease.entry[1:])
    await scene.store.ask("XACK", f"{scene.base}:fifo", "workers", scene.lease.entry[1:])


async def without_group(scene: Scene) -> None:
    """Destroy the group of the workers by hand."""
    await scene.store.ask("XGROUP", "DESTROY", f"{scene.base}:fifo", "workers")


async def paused(scene: Scene) -> None:
    await scene.queue.add("n", None)
    await scene.queue.pause()


async def limited(scene: Scene) -> None:
    await scene.queue.set_global_concurrency(1)
    await scene.queue.add("n", None)


async def retained(scene: Scene) -> None:
    """Let another job that ends apply another retention."""
    await scene.complete_others(10)
    await scene.queue.add("n", None)
    other = FakeWorker(scene.queue, scene.store)
    await other.complete(*await other.claim(1), retention=[Retention(100)])


async def with_others(scene: Scene) -> None:
    """Let jobs of other kinds wait."""
    await scene.queue.add("n", 1, priority=3)
    await scene.queue.add("n", 2, lifo=True)
    await scene.queue.add("n", 3, delay=60)
    await scene.queue.add("n", 4, key="k")


PREPARATIONS: Final[dict[str, Prepare]] = {
    "alone": nothing,
    "one waits": waiting(1),
    "one waits with its own lease": waiting(1, JobOptions(lock_duration=3)),
    "as many wait as the worker takes": waiting(3),
    "many wait": waiting(7),
    "one waits with a time to live": waiting(1, JobOptions(ttl=60)),
    "jobs with and without a record wait": mixed,
    "awaited": awaited,
    "awaited after others": awaited_after_others,
    "late": late,
    "long ago": long_ago,
    "after a lost call": after_a_lost_call,
    "recovered": recovered,
    "removed": removed,
    "paused": paused,
    "limited": limited,
    "retained": retained,
}

CALLS_AGAIN: Final[dict[str, Prepare]] = {
    "more wait than one step takes": waiting(12),
    "without a group": without_group,
    "with other jobs": with_others,
}
"""Preparations after which one of the two paths may ask the worker to call again."""


def without_times(value: object, names: dict[bytes, bytes]) -> object:
    """Return stored data without what differs between two queues: times, names, and the node of a cluster."""
    if isinstance(value, list):
        return [without_times(item, names) for item in cast("list[object]", value)]
    if not isinstance(value, bytes):
        return value
    for name, short in names.items():
        value = value.replace(name, short)
    value = re.sub(rb"\xcf.{8}", b"time", value, flags=re.DOTALL)
    value = re.sub(rb"^[0-9a-f]{40}$", b"server", value)
    value = re.sub(rb"(?<!\d)1\d{12}(?!\d)", b"time", value)
    return re.sub(rb"(?<=time-)\d+$", b"number", value)


def pairs(reply: object) -> list[tuple[bytes, bytes]]:
    """Return the fields and the values of a hash."""
    flat = cast("list[bytes]", reply)
    return list(zip(flat[::2], flat[1::2], strict=True))


async def stored(scene: Scene) -> dict[str, object]:
    """Return the data of the queue, without times and names.

    The metrics of all minutes are added, because the jobs of one of the queues may end in two minutes.
    """
    ask, found = scene.store.ask, dict[str, object]()
    meta = await ask("HGET", f"{scene.base}:meta2", "incarnation")
    assert isinstance(meta, bytes)
    names = {scene.worker.name.encode(): b"worker", meta: b"incarnation"}
    readers: dict[bytes, Callable[[str], list[tuple[str | int, ...]]]] = {
        b"string": lambda key: [("GET", key)],
        b"hash": lambda key: [("HGETALL", key)],
        b"set": lambda key: [("SMEMBERS", key)],
        b"zset": lambda key: [("ZRANGE", key, 0, -1, "WITHSCORES")],
        b"stream": lambda key: [("XRANGE", key, "-", "+"), ("XINFO", "GROUPS", key)],
    }
    for key in await scene.store.keys():
        own = key.removeprefix(scene.base)
        # The calls of other workers and clients have names of their own.
        if own == key or (own.startswith(":call:") and own != f":call:{scene.worker.name}"):
            continue
        if own.startswith(":metrics:"):
            totals = cast("dict[str, int]", found.setdefault(":metrics", {"n": 0, "ms": 0}))
            for field, number in pairs(await ask("HGETALL", key)):
                totals[field.decode().partition(":")[2]] += int(number)
            continue
        kind = await ask("TYPE", key)
        assert isinstance(kind, bytes)
        values = [without_times(await ask(*command), names) for command in readers[kind](key)]
        if kind in (b"hash", b"set", b"zset"):
            flat = cast("list[object]", values[0])
            step = 1 if kind == b"set" else 2
            values = [*sorted(flat[i : i + step] for i in range(0, len(flat), step))]
        found[own.replace(scene.worker.name, "worker")] = values
    return found


def jobs_in(reply: SettleReply) -> list[object]:
    """Return the jobs of a reply without the times in their entries."""
    return [(job.id, TIME_IN_ENTRY.sub("time", job.entry), job.name, job.data, job.is_plain) for job in reply.jobs]


def outline(reply: SettleReply) -> tuple[object, ...]:
    """Return a reply without its times."""
    return jobs_in(reply), reply.due == reply.now, reply.due == 0, reply.refused, reply.settled


class Settled(NamedTuple):
    """The reply to a call, the data after it, and all jobs that this call and the following ones have claimed."""

    reply: tuple[object, ...]
    data: dict[str, object]
    jobs: list[object]


async def pushed(queue: AnyQueue, worker: IdleWorker) -> Lease:
    """Add a job while the worker is idle. Return its lease."""
    await worker.wait()
    await queue.add("n", "first")
    [lease] = leases_in(await worker.pushed())
    return lease


async def claimed(queue: AnyQueue, worker: IdleWorker, *, accepts_pushes: bool) -> Lease:
    """Add a job and let the worker claim it."""
    await queue.add("n", "first")
    [lease] = leases_of(await worker.wait(accepts_pushes=accepts_pushes))
    return lease


async def settled(
    scenario: Scenario, slots: int, storage: Storage, store: RunningStore, name: str, *, verify: bool
) -> Settled:
    """Let a worker get a job, settle its run, and repeat its call. Let it call again while it is asked to."""
    async with AsyncExitStack() as stack:
        queue = await stack.enter_async_context(Queue[Any, Any](name, storage))
        worker = IdleWorker(queue, store)
        await stack.enter_async_context(worker.listening())
        await complete_jobs(queue, store, scenario.earlier)
        accepts, is_pushed = scenario.accepts_pushes, scenario.is_pushed
        lease = await (pushed(queue, worker) if is_pushed else claimed(queue, worker, accepts_pushes=accepts))
        scene = Scene(queue, store, worker, lease)
        other_lease = await scenario.prepare(scene)
        reply = await worker.settle_and_wait(
            other_lease or lease, slots=slots, accepts_pushes=accepts, has_push=is_pushed, verify=verify
        )
        data, jobs = await stored(scene), jobs_in(reply)
        again = await worker.repeat()
        assert jobs_in(again) == jobs
        next_reply = reply
        while next_reply.due == next_reply.now and len(jobs) < slots:
            next_reply = await worker.wait(slots - len(jobs))
            jobs += jobs_in(next_reply)
        assert await queue.check() == []
        await scene.forget_clients()
        await worker.leave()
        return Settled(outline(reply), data, jobs)


async def both(
    scenario: Scenario, slots: int, storage: Storage, store: RunningStore, name: str
) -> tuple[Settled, Settled]:
    """Return what the short path and the general path of the call have done."""
    short = await settled(scenario, slots, storage, store, f"{name}-a", verify=False)
    return short, await settled(scenario, slots, storage, store, f"{name}-b", verify=True)


@everywhere
@pytest.mark.parametrize("slots", [1, 3, 20])
@pytest.mark.parametrize("prepare", PREPARATIONS.values(), ids=PREPARATIONS)
async def test_the_run_of_one_job_ends_as_any_other_run(
    storage: Storage, store: RunningStore, name: str, prepare: Prepare, slots: int
) -> None:
    short, general = await both(Scenario(prepare), slots, storage, store, name)
    assert short.reply == general.reply
    assert short.data.keys() == general.data.keys()
    for key, value in short.data.items():
        assert value == general.data[key], key


@everywhere
@pytest.mark.parametrize("accepts_pushes", [True, False])
@pytest.mark.parametrize("prepare", [nothing, waiting(3), awaited], ids=["alone", "jobs wait", "awaited"])
async def test_the_run_of_one_claimed_job_ends_as_any_other_run(
    storage: Storage, store: RunningStore, name: str, prepare: Prepare, accepts_pushes: bool
) -> None:
    scenario = Scenario(prepare, is_pushed=False, accepts_pushes=accepts_pushes)
    short, general = await both(scenario, 1, storage, store, name)
    assert short == general


@everywhere
async def test_a_run_that_ends_after_a_lost_push_returns_its_job(
    storage: Storage, store: RunningStore, name: str
) -> None:
    async def push(scene: Scene) -> None:
        await scene.worker.wait()
        await scene.queue.add("n", "lost")
        await scene.worker.pushed()

    short, general = await both(Scenario(push, is_pushed=False), 2, storage, store, name)
    assert short == general
    assert len(short.jobs) == 1


async def at_a_turn(scene: Scene) -> None:
    await scene.set_ends(TURN - 1)


async def after_a_turn(scene: Scene) -> None:
    await scene.set_ends(TURN)


async def before_the_first_end(scene: Scene) -> None:
    await scene.set_ends(0)


def kept(result: Settled) -> int:
    """Return the number of outcomes that are kept."""
    return len(cast("list[object]", result.data[":results"]))


@everywhere
@pytest.mark.parametrize(
    ("earlier", "prepare"), [(KEPT + SLACK - 1, after_a_turn), (KEPT + SLACK, at_a_turn)], ids=["within", "beyond"]
)
async def test_retention_removes_jobs_after_the_run_of_one_job(
    storage: Storage, store: RunningStore, name: str, earlier: int, prepare: Prepare
) -> None:
    short, general = await both(Scenario(prepare, earlier=earlier), 1, storage, store, name)
    assert short == general
    assert kept(short) == (KEPT + SLACK if earlier < KEPT + SLACK else KEPT)


@everywhere
@pytest.mark.parametrize("prepare", [at_a_turn, before_the_first_end])
@pytest.mark.parametrize("excess", [SLACK + 1 - TURN, SLACK + 2 - TURN])
async def test_a_turn_leaves_room_for_the_ends_before_the_next_one(
    storage: Storage, store: RunningStore, name: str, excess: int, prepare: Prepare
) -> None:
    result = await settled(Scenario(prepare, earlier=KEPT + excess - 1), 1, storage, store, name, verify=False)
    assert kept(result) == (KEPT + excess if excess + TURN - 1 <= SLACK else KEPT)


@everywhere
async def test_only_a_turn_releases_held_jobs(storage: Storage, store: RunningStore, name: str) -> None:
    async def held_after(ends: int) -> int:
        async def prepare(scene: Scene) -> None:
            await awaited_after_others(scene)
            await scene.set_ends(ends)

        result = await settled(Scenario(prepare), 1, storage, store, f"{name}-{ends}", verify=False)
        return len(cast("list[object]", result.data[":held"]))

    # The replies of three earlier jobs are held, one of them for too long, and the reply of this job.
    assert await held_after(TURN) == 4
    assert await held_after(TURN - 1) == 3


@everywhere
@pytest.mark.parametrize("slots", [3, 20])
@pytest.mark.parametrize("prepare", CALLS_AGAIN.values(), ids=CALLS_AGAIN)
async def test_the_worker_gets_the_other_jobs_with_its_next_call(
    storage: Storage, store: RunningStore, name: str, prepare: Prepare, slots: int
) -> None:
    short, general = await both(Scenario(prepare), slots, storage, store, name)
    assert short.jobs == general.jobs
    assert len(short.jobs) > 1 or prepare is without_group


@everywhere
async def test_a_call_for_a_queue_that_was_created_again_changes_nothing(queue: AnyQueue, store: RunningStore) -> None:
    await queue.connect()
    worker = IdleWorker(queue, store)
    async with worker.listening():
        await worker.wait()
        await queue.add("n", None)
        [lease] = leases_in(await worker.pushed())
        with pytest.raises(FunctionError, match="UNDECLARED"):
            await worker.settle_and_wait(lease, has_push=True, incarnation="another")
        assert await counts(queue) == {"active": 1}
        await worker.settle_and_wait(lease, has_push=True)
        assert await counts(queue) == {"completed": 1}
        await worker.leave()
