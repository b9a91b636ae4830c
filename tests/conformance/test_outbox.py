"""The outbox: jobs on their way to another queue survive every crash and arrive once, whichever process relays them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from statistics import median
from typing import Any, cast

import pytest

from glidemq_async import IncompatibleQueueError, Queue
from glidemq_async._internal import failpoints
from glidemq_async.client.outbox import Outbox
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.functions.inbox import Delivery
from glidemq_async.storage import Arg, RedisStorage, Storage
from glidemq_async.storage.redis.library import Library, shipped
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import PATIENCE, AnyJob, AnyQueue, Heard, echo, soon, worker_of
from tests.support.recording_storage import Relay
from tests.support.servers import standalone
from tests.support.stores import RunningStore, endpoint_of


class Crash(BaseException):
    """Ends the relay as the death of its process would."""


@pytest.fixture
async def dead(storage: Storage, name: str) -> AsyncIterator[AnyQueue]:
    """Return the target queue."""
    async with Queue[Any, Any](f"{name}-dead", storage) as opened:
        yield opened


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


async def post(queue: AnyQueue, dead: AnyQueue, fake_worker: FakeWorker, count: int, *, data: Any = None) -> None:
    """Fail this many jobs and relay nothing."""
    await queue.set_dead_letter_queue(dead.name)
    await queue.add_bulk([("n", number if data is None else data) for number in range(count)])
    while leases := await fake_worker.claim(count):
        for lease in leases:
            await fake_worker.settle(lease, "f")


def outbox_of(queue: AnyQueue, holder: str, storage: Storage | None = None) -> Outbox:
    """Return the outbox of a queue as one process sees it."""
    client = QueueClient(queue.name, storage or queue.storage, prefix="glide", mode=None)
    return Outbox(client, holder)


async def waiting_data(dead: AnyQueue) -> list[Any]:
    return [job.data async for job in dead.iter_jobs("waiting")]


async def filled(dead: AnyQueue) -> None:
    """Wait until a job has arrived."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if await dead.count():
                return
            await asyncio.sleep(0.005)


async def pass_time(queue: AnyQueue, store: RunningStore) -> None:
    """Let the turn of the relaying worker expire."""
    await store.ask("HDEL", f"glide:{{{queue.name}}}:meta2", "relaying")


async def posted(queue: AnyQueue, store: RunningStore) -> object:
    return await store.ask("XLEN", f"glide:{{{queue.name}}}:outbox")


@pytest.mark.everywhere
async def test_posted_jobs_arrive_once_and_in_order(
    queue: AnyQueue, dead: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    await post(queue, dead, fake_worker, 230)
    await outbox_of(queue, "a").relay()
    assert await waiting_data(dead) == list(range(230))
    await outbox_of(queue, "b").relay()
    assert await dead.count() == 230
    assert await store.ask("EXISTS", f"glide:{{{queue.name}}}:outbox") == 0


@pytest.mark.parametrize("point", ["relay.before_deliver", "relay.after_deliver"])
async def test_the_next_process_continues_after_a_relayer_died(
    queue: AnyQueue, dead: AnyQueue, store: RunningStore, fake_worker: FakeWorker, point: str
) -> None:
    await post(queue, dead, fake_worker, 130)

    def crash() -> None:
        raise Crash

    failpoints.arm(point, crash)
    with pytest.raises(Crash):
        await outbox_of(queue, "dying").relay()
    failpoints.disarm()
    assert await posted(queue, store) == 130
    # The dead process still has its turn for a while.
    await outbox_of(queue, "next").relay()
    assert await posted(queue, store) == 130
    await pass_time(queue, store)
    await outbox_of(queue, "next").relay()
    assert await waiting_data(dead) == list(range(130))
    assert await posted(queue, store) == 0


async def test_a_delivered_job_that_was_removed_does_not_arrive_again(
    queue: AnyQueue, dead: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    await post(queue, dead, fake_worker, 3)

    def crash() -> None:
        raise Crash

    failpoints.arm("relay.after_deliver", crash)
    with pytest.raises(Crash):
        await outbox_of(queue, "dying").relay()
    failpoints.disarm()
    assert await dead.replay_dead_letter_jobs() == 3
    await pass_time(queue, store)
    await outbox_of(queue, "next").relay()
    assert (await dead.count(), await queue.count(), await posted(queue, store)) == (0, 3, 0)


async def test_only_one_relays_at_a_time(queue: AnyQueue, dead: AnyQueue, fake_worker: FakeWorker) -> None:
    await post(queue, dead, fake_worker, 150)
    held, go_on = asyncio.Event(), asyncio.Event()

    async def pause(function: str, _: Sequence[Arg]) -> None:
        if function == "deliverJobs":
            held.set()
            await go_on.wait()

    slow = Relay(queue.storage)
    slow.before_call = pause
    first = asyncio.create_task(outbox_of(queue, "first", slow).relay())
    await soon(held.wait())
    other = Relay(queue.storage)
    await outbox_of(queue, "second", other).relay()
    assert "deliverJobs" not in other.calls
    go_on.set()
    await soon(first)
    assert await waiting_data(dead) == list(range(150))


async def test_two_concurrent_relayers_add_nothing_twice(
    queue: AnyQueue, dead: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    await post(queue, dead, fake_worker, 150)
    held, go_on = asyncio.Event(), asyncio.Event()

    async def pause(function: str, _: Sequence[Arg]) -> None:
        if function == "deliverJobs" and not held.is_set():
            held.set()
            await go_on.wait()

    slow = Relay(queue.storage)
    slow.before_call = pause
    first = asyncio.create_task(outbox_of(queue, "first", slow).relay())
    await soon(held.wait())
    # The first one pauses for longer than its turn, and another one relays everything.
    await pass_time(queue, store)
    await outbox_of(queue, "second").relay()
    assert await waiting_data(dead) == list(range(150))
    go_on.set()
    await soon(first)
    assert await waiting_data(dead) == list(range(150))


async def test_large_entries_are_read_in_steps(queue: AnyQueue, dead: AnyQueue, fake_worker: FakeWorker) -> None:
    await post(queue, dead, fake_worker, 9, data=bytes(500_000))
    way = Relay(queue.storage)
    await outbox_of(queue, "a", way).relay()
    assert way.calls.count("deliverJobs") >= 3
    assert await dead.count() == 9


async def test_an_unusable_target_does_not_block_others(
    queue: AnyQueue, dead: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    foreign = f"{queue.name}-foreign"
    await store.ask("HSET", f"glide:{{{foreign}}}:meta2", "owner", "somebody")
    await queue.set_dead_letter_queue(foreign)
    await queue.add("n", "lost?")
    [lease] = await fake_worker.claim()
    await fake_worker.settle(lease, "f")
    await post(queue, dead, fake_worker, 120)
    with pytest.raises(IncompatibleQueueError, match=foreign):
        await outbox_of(queue, "a").relay()
    assert (await dead.count(), await posted(queue, store)) == (120, 1)
    async with worker_of(queue, echo, lock_duration=1) as worker:
        errors = Heard(worker, "error")
        assert isinstance((await errors.next())[0], IncompatibleQueueError)
        # The jobs for it arrive once it can be used.
        await store.ask("DEL", f"glide:{{{foreign}}}:meta2")
        async with Queue[Any, Any](foreign, queue.storage) as mended:
            await filled(mended)
            assert await waiting_data(mended) == ["lost?"]


async def test_a_target_is_tried_once_in_a_pass(queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker) -> None:
    foreign: AnyQueue = Queue(f"{queue.name}-foreign", queue.storage)
    key = f"glide:{{{foreign.name}}}:meta2"
    await store.ask("HSET", key, "owner", "somebody")
    await post(queue, foreign, fake_worker, 250)
    way = Relay(queue.storage)
    with pytest.raises(IncompatibleQueueError):
        await outbox_of(queue, "a", way).relay()
    assert (way.calls.count("openQueue"), way.calls.count("deliverJobs")) == (1, 0)
    await store.ask("DEL", key)
    await outbox_of(queue, "a").relay()
    assert await waiting_data(foreign) == list(range(250))


async def test_an_emptied_outbox_reuses_no_entry_id(
    queue: AnyQueue, dead: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    await post(queue, dead, fake_worker, 1)
    await outbox_of(queue, "a").relay()
    # As if the clock had been set back by an hour: the target knows the entries of that hour.
    key = f"glide:{{{queue.name}}}:meta2"
    last = await store.ask("HGET", key, "outbox_last")
    assert isinstance(last, bytes)
    ahead = f"{int(last.partition(b'-')[0]) + 3_600_000}-7"
    await store.ask("HSET", key, "outbox_last", ahead)
    await post(queue, dead, fake_worker, 2)
    [first, second] = await entries(queue, store)
    assert first == ahead.replace("-7", "-8")
    assert second == ahead.replace("-7", "-9")


async def test_dead_letters_in_quick_succession_are_all_delivered(queue: AnyQueue, dead: AnyQueue) -> None:
    async def fail(job: AnyJob) -> None:
        raise ValueError

    # The outbox becomes empty repeatedly, even within one millisecond.
    workers = [worker_of(queue, fail, concurrency=2, dead_letter_queue=dead.name) for _ in range(3)]
    for worker in workers:
        await worker.start()
    for number in range(200):
        await queue.add("n", number)
    async with asyncio.timeout(20):
        while True:
            if await dead.count() == 200:
                break
            await asyncio.sleep(0.01)
    for worker in workers:
        await worker.close()
    assert sorted(await waiting_data(dead)) == list(range(200))


async def entries(queue: AnyQueue, store: RunningStore) -> list[str]:
    found = await store.ask("XRANGE", f"glide:{{{queue.name}}}:outbox", "-", "+")
    assert isinstance(found, list)
    return [row[0].decode() for row in cast("list[list[bytes]]", found)]


async def test_a_worker_relays_immediately(queue: AnyQueue, dead: AnyQueue) -> None:
    async def fail(job: AnyJob) -> None:
        raise ValueError

    loop = asyncio.get_running_loop()
    took: list[float] = []
    async with worker_of(queue, fail, lock_duration=3600, dead_letter_queue=dead.name):
        for _ in range(5):
            began = loop.time()
            await queue.add("n")
            await filled(dead)
            took.append(loop.time() - began)
            await dead.drain()
    # Sweeps also start a relay, one second after the one before. Most of them, because a host may pause now and then.
    assert median(took) < 0.7


async def test_a_job_is_delivered_once_per_token(dead: AnyQueue) -> None:
    functions = QueueClient(dead.name, dead.storage, prefix="glide", mode=None).functions
    one = Delivery("t1", b"one", b"n", b"\x01", b"", b"", b"")
    assert await functions.inbox.deliver([one, one]) == {1: "seen"}
    other = one._replace(token="t2")
    assert await functions.inbox.deliver([one, other]) == {0: "seen", 1: "duplicate"}
    await dead.remove("one")
    assert await functions.inbox.deliver([one, other]) == {0: "seen", 1: "seen"}
    assert await dead.count() == 0


@asynccontextmanager
async def bounded(*bounds: tuple[str, str]) -> AsyncGenerator[tuple[AnyQueue, AnyQueue, FakeWorker, RunningStore]]:
    """A queue, its dead-letter queue and a fake worker, on a library with smaller bounds."""
    text = shipped().text
    for old, new in bounds:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    async with standalone(unix=True) as server:
        store = RunningStore("small", server.url, (endpoint_of(server),))
        async with (
            RedisStorage(endpoint_of(server), library=Library(text)) as storage,
            Queue[Any, Any]("full", storage) as queue,
            Queue[Any, Any]("full-dead", storage) as dead,
        ):
            yield queue, dead, FakeWorker(queue, store), store


async def test_a_dead_letter_queue_keeps_the_newest() -> None:
    small = (
        ("MOST_MOVED = 100000", "MOST_MOVED = 20"),
        ("LAST_HOUR, HOUR_MS = 10000, 100000,", "LAST_HOUR, HOUR_MS = 30, 30,"),
    )
    async with bounded(*small) as (queue, dead, fake_worker, store):
        await post(queue, dead, fake_worker, 50)
        await fake_worker.leave()
        await outbox_of(queue, "a").relay()
        assert await waiting_data(dead) == list(range(30, 50))
        assert [job.data for job in await dead.get_dead_letter_jobs(end=2)] == [49, 48, 47]
        assert await store.ask("ZCARD", "glide:{full-dead}:inbox") == 30
        assert await dead.check() == []


async def test_a_full_outbox_accepts_nothing_more() -> None:
    async with bounded(("local MOST = 100000", "local MOST = 5")) as (queue, dead, fake_worker, store):
        await post(queue, dead, fake_worker, 8)
        await fake_worker.leave()
        assert await posted(queue, store) == 5
        # They are still dead letters of the queue itself.
        assert len(await queue.get_dead_letter_jobs()) == 8
