"""Obliterating removes a queue with every key, but not while jobs run unless forced. The queue can begin again."""

from __future__ import annotations

import asyncio
import itertools
import pickle
from typing import Any

import pytest

from glidemq_async import FlowJob, FlowProducer, JobNotFound, JobOptions, Queue, QueueBusy, QueueEvents
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.obliterate import ObliterateStep
from glidemq_async.queues import cleaning
from glidemq_async.storage import Storage
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import (
    PATIENCE,
    AnyJob,
    AnyQueue,
    Gate,
    Heard,
    counts,
    echo,
    ended,
    listening,
    soon,
    worker_of,
)
from tests.support.recording_storage import Relay
from tests.support.stores import RunningStore
from tests.support.waiting_jobs import EVERY_KIND, add_kind, waited_for, waits_for_events


async def keys_of(queue: AnyQueue, store: RunningStore) -> list[str]:
    """Return every key of a queue."""
    return [key for key in await store.keys() if f"{{{queue.name}}}" in key]


async def fill(queue: AnyQueue) -> None:
    """Leave jobs of every kind and all their data."""

    async def work(job: AnyJob) -> Any:
        await job.log("a line")
        await job.update_progress(1)
        if job.data % 2:
            raise ValueError("odd")
        return job.data

    async with worker_of(queue, work, concurrency=4):
        for job in await queue.add_bulk([("n", number) for number in range(6)]):
            await ended(job)
        await queue.add_and_wait("n", 2, wait_timeout=10, keep_completed=False)
    await queue.add_bulk([("n", number, JobOptions(ttl=60)) for number in range(700)])
    await queue.add("n", delay=60)
    await queue.pause()


@pytest.mark.everywhere
async def test_obliterating_leaves_no_key(queue: AnyQueue, store: RunningStore) -> None:
    await fill(queue)
    # The awaited record without retention is removed after its receipt, which may have happened already.
    assert await queue.obliterate() in {707, 708}
    assert await keys_of(queue, store) == []


@pytest.mark.everywhere
async def test_obliterating_removes_every_kind_of_job_and_limit(queue: AnyQueue, store: RunningStore) -> None:
    functions = Functions(queue.storage, f"glide:{{{queue.name}}}")
    fake_worker = FakeWorker(queue, store)
    await functions.limits.set(concurrency="100", rate="100 60000")
    await functions.limits.set_key("k", concurrency="2", rate="10 60000", bucket="10000 1000")
    await functions.limits.set_key("", concurrency="1")
    for extra in EVERY_KIND.values():
        await add_kind(queue, 3, **extra | {"dedup": {"id": "d", "mode": "throttle", "ttl": 60_000}})
        await add_kind(queue, 3, **extra)
    await add_kind(queue, 2, key="resting")
    await functions.limits.pause_key("paused", 60_000)
    await add_kind(queue, 1, key="paused")
    for lease in await fake_worker.claim(30):
        await fake_worker.settle(lease, {"0": "r", "1": "c", "2": "f"}.get(lease.id[-1], "d"))
    await add_kind(queue, 2, key="k")
    await fake_worker.claim(1)
    await queue.obliterate(force=True)
    assert await keys_of(queue, store) == []


async def test_reused_ids_find_no_data_of_earlier_jobs(queue: AnyQueue, store: RunningStore) -> None:
    fake_worker = FakeWorker(queue, store)
    await add_kind(queue, 3, priority=5)
    await queue.obliterate()
    await queue.add("n")
    assert [lease.id for lease in await fake_worker.claim(10)] == ["1"], (
        "a stale entry must not start a new job a second time"
    )
    await fake_worker.leave()
    await queue.drain()


@pytest.mark.everywhere
async def test_a_queue_can_begin_again(queue: AnyQueue) -> None:
    await fill(queue)
    await queue.obliterate()
    assert not await queue.is_paused()
    async with worker_of(queue, echo):
        job = await queue.add("n", 7)
        assert (job.id, await job.result(10)) == ("1", 7)
    # Clients that were connected before and clients that connect now both find the new queue.
    async with Queue[Any, Any](queue.name, queue.storage, mode="global") as another:
        assert (await another.get_job_counts())["completed"] == 1


@pytest.mark.everywhere
async def test_obliterating_is_refused_while_jobs_run(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate):
        await queue.add_bulk([("n", 1), ("n", 2)])
        await gate.running()
        with pytest.raises(QueueBusy, match=r"while 1 of its jobs are running; .*force=True") as caught:
            await queue.obliterate()
        assert (caught.value.queue, caught.value.running) == (queue.name, 1)
        assert not await queue.is_paused()
        counts = await queue.get_job_counts()
        assert (counts["active"], counts["waiting"]) == (1, 1)
        gate.release()
        await (await queue.add("n", 3)).result(10)
    assert await queue.obliterate() == 3


@pytest.mark.everywhere
async def test_force_stops_active_jobs(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, concurrency=2) as worker:
        lost = Heard(worker, "lease_lost")
        await queue.add_bulk([("n", number) for number in range(5)])
        running = {(await gate.running()).id, (await gate.running()).id}
        assert await queue.obliterate(force=True) == 5
        assert {(await lost.next())[0].id, (await lost.next())[0].id} == running
        assert (await queue.get_job_counts())["active"] == 0
        # The worker is asked to claim again, so no job has to wait for its next poll.
        gate.release()
        assert await queue.add_and_wait("n", 9, wait_timeout=5) == 9


async def test_an_outcome_of_the_old_queue_is_refused(queue: AnyQueue, store: RunningStore) -> None:
    fake_worker = FakeWorker(queue, store)
    await queue.add_bulk([("n", number) for number in range(3)])
    first, second = await fake_worker.claim(2)
    await fake_worker.settle(first, "b")
    (again,) = await fake_worker.claim(1)
    assert (first.entry[0], again.entry[0]) == ("p", "l")
    assert await queue.obliterate(force=True) == 3
    await queue.add("another", job_id=second.id)
    for lease in (first, second, again):
        assert await fake_worker.settle(lease) in {"missing", "stale"}
    assert [job.id async for job in queue.iter_jobs("waiting")] == [second.id]
    await fake_worker.leave()
    await queue.obliterate()
    assert await keys_of(queue, store) == []


async def test_an_idle_worker_finds_the_new_queue(queue: AnyQueue) -> None:
    async with worker_of(queue, echo, concurrency=3):
        assert await queue.add_and_wait("n", 1, wait_timeout=5) == 1
        await queue.obliterate()
        assert await queue.add_and_wait("n", 2, wait_timeout=5) == 2


@pytest.mark.everywhere
async def test_a_client_that_waits_is_notified(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n", delay=60)
    waiting = asyncio.ensure_future(job.result(30))
    await waited_for(queue, store, 1)
    await queue.obliterate()
    with pytest.raises(JobNotFound):
        await soon(waiting, 3)


async def test_an_event_reader_continues_in_the_new_queue_without_a_gap(queue: AnyQueue, store: RunningStore) -> None:
    await queue.add_bulk([("n", number) for number in range(3)])
    async with listening(queue) as events:
        following = asyncio.ensure_future(events.next())
        await waits_for_events(store)
        await queue.obliterate()
        event = await soon(following)
        assert (event.kind, event.job_id, event.detail) == ("obliterated", "", "3")
        job = await queue.add("n")
        event = await events.next()
        assert (event.kind, event.job_id) == ("added", job.id)


async def test_a_reader_that_read_everything_resumes_without_a_gap(queue: AnyQueue, store: RunningStore) -> None:
    await queue.add_bulk([("n", number) for number in range(3)])
    async with listening(queue) as events:
        following = asyncio.ensure_future(events.next())
        await waits_for_events(store)
        await queue.obliterate()
        last = await soon(following)
        assert last.kind == "obliterated"
    jobs = await queue.add_bulk([("n", 1), ("n", 2)])
    async with listening(queue, after=last.position) as events:
        assert [(await events.next()).job_id for _ in jobs] == [job.id for job in jobs]


async def test_regression_events_of_a_queue_created_in_the_same_millisecond_are_delivered(queue: AnyQueue) -> None:
    """Ids of events begin with the millisecond, and a reader does not see ids below its position."""
    async with listening(queue) as events:
        await queue.add("n")
        await events.next()
        for _ in range(20):
            await queue.obliterate()
            job = await queue.add("n")
            assert (await events.gap()).missed is None
            assert (await events.next()).job_id == job.id


@pytest.mark.everywhere
@pytest.mark.parametrize("added", [1, 3, 7])
async def test_regression_a_reader_that_missed_events_gets_a_gap(queue: AnyQueue, added: int) -> None:
    """The numbers of events begin again: below, at and above the numbers that the reader knows."""
    await queue.add_bulk([("n", number) for number in range(3)])
    async with QueueEvents(queue.name, queue.storage) as events:
        before = events.position
    await queue.add("unread")
    await queue.obliterate()
    jobs = await queue.add_bulk([("n", number) for number in range(added)])
    async with listening(queue, after=before) as events:
        gap = await events.gap()
        assert gap.missed is None, "the number of lost events is unknown"
        assert [(await events.next()).job_id for _ in jobs] == [job.id for job in jobs]
        await queue.add("n")
        assert (await events.next()).kind == "added"
    async with listening(queue, after=gap.position) as events:
        assert [(await events.next()).job_id for _ in jobs] == [job.id for job in jobs]


async def test_a_slow_reader_gets_a_gap(queue: AnyQueue) -> None:
    async with listening(queue) as events:
        first = await queue.add("n")
        assert (await events.next()).job_id == first.id
        await queue.add_bulk([("unread", number) for number in range(3)])
        await queue.obliterate()
        job = await queue.add("n")
        assert (await events.gap()).missed is None
        assert (await events.next()).job_id == job.id


async def test_events_between_two_obliterated_events_are_not_a_gap(queue: AnyQueue, storage: Storage) -> None:
    """Jobs that arrive after the first event are removed too, and a second event follows before the queue is gone."""
    relay, heard, late = Relay(storage), asyncio.Semaphore(0), ["late"]

    async def add_one(function: str, _args: object, reply: list[bytes]) -> None:
        if function == "obliterateQueue" and reply[0].startswith(b"reported"):
            await heard.acquire()
            if late:
                await queue.add(late.pop())
                await heard.acquire()

    relay.after_call = add_one
    async with Queue[Any, Any](queue.name, relay) as other, listening(queue) as events:
        obliterating = asyncio.create_task(other.obliterate())
        for kind in ("obliterated", "added", "obliterated"):
            assert (await events.next()).kind == kind
            heard.release()
        await obliterating


async def test_wildcards_in_a_name_are_literal(storage: Storage, store: RunningStore) -> None:
    async with Queue[Any, Any]("t[1]*?", storage) as one, Queue[Any, Any]("t1xy", storage) as other:
        await one.add("n")
        kept = await other.add("n")
        assert await one.obliterate() == 1
        assert await keys_of(one, store) == []
        assert await kept.get_state() == "waiting"


async def test_damaged_data_is_removed_too(queue: AnyQueue, store: RunningStore) -> None:
    base = f"glide:{{{queue.name}}}"
    await queue.add("n")
    await store.ask("HSET", f"{base}:job:ghost", "name", "x")
    await store.ask("RPUSH", f"{base}:logs:nobody", "a line")
    await store.ask("ZADD", f"{base}:returned", 1, "nobody")
    await queue.obliterate()
    assert await keys_of(queue, store) == []


async def test_concurrent_adds_are_complete_or_removed(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number) for number in range(3_000)])
    stop = asyncio.Event()

    async def keep_adding() -> None:
        while not stop.is_set():
            await queue.add_bulk([("n", 1), ("n", 2, JobOptions(delay=60))] * 5)

    adding = asyncio.create_task(keep_adding())
    assert await soon(queue.obliterate()) >= 3_000
    stop.set()
    await adding
    assert await queue.check() == []


async def test_adds_before_each_step_do_not_delay_the_end(
    queue: AnyQueue, storage: Storage, store: RunningStore
) -> None:
    relay, waiting = Relay(storage), list[asyncio.Task[Any]]()

    async def add_one(function: str, _args: object) -> None:
        if function == "obliterateQueue":
            options: list[Any] = [{}, {"priority": 1}, {"delay": 60}, {"key": "k"}]
            job = await queue.add("n", **options[len(waiting) % len(options)])
            waiting.append(asyncio.create_task(job.result(PATIENCE)))
            await waited_for(queue, store, 1)

    relay.before_call = add_one
    async with Queue[Any, Any](queue.name, relay) as other:
        assert await soon(other.obliterate(), 10) == len(waiting)
    # The callers of the jobs that the last step removed are notified too.
    ends = await soon(asyncio.gather(*waiting, return_exceptions=True), 5)
    assert {type(end) for end in ends} == {JobNotFound}
    await queue.add("n")
    assert await queue.count() == 1
    assert await queue.check() == []


async def test_sixty_producers_do_not_delay_the_end(queue: AnyQueue) -> None:
    stop, busy, numbers = asyncio.Event(), asyncio.Event(), itertools.count()

    async def keep_adding() -> None:
        while not stop.is_set():
            if (number := next(numbers)) == 1_000:
                busy.set()
            await queue.add("n", number)

    async with asyncio.TaskGroup() as producers:
        for _ in range(60):
            producers.create_task(keep_adding())
        await busy.wait()
        removed = await soon(queue.obliterate(force=True), 20)
        stop.set()
    # Each job was removed with the old queue, or is in the new one.
    assert removed + await queue.count() == next(numbers)
    assert await queue.check() == []


async def test_clients_that_add_faster_than_jobs_are_removed_end_it_with_an_error(
    queue: AnyQueue, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "MOST_ADDED", 2_000)
    relay = Relay(storage)

    async def add_many(function: str, _args: object) -> None:
        if function == "obliterateQueue":
            await queue.add_bulk([("n", number, JobOptions(priority=1)) for number in range(600)])

    relay.before_call = add_many
    await queue.add("n")
    async with Queue[Any, Any](queue.name, relay) as other:
        with pytest.raises(QueueBusy, match="stop these clients and call obliterate again") as caught:
            await soon(other.obliterate(), 10)
    assert (caught.value.running, caught.value.queue) == (0, queue.name)
    assert caught.value.added > 2_000
    assert pickle.loads(pickle.dumps(caught.value)).added == caught.value.added
    assert await queue.is_paused()
    assert await queue.obliterate() > 0
    assert await queue.count() == 0


async def test_an_empty_queue_can_be_obliterated(queue: AnyQueue, store: RunningStore) -> None:
    assert await queue.obliterate() == 0
    assert await queue.obliterate(force=True) == 0
    assert await keys_of(queue, store) == []


async def test_bad_arguments_are_refused(queue: AnyQueue) -> None:
    with pytest.raises(TypeError, match="force must be True or False, got 'yes'"):
        await queue.obliterate("yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_regression_a_client_that_stayed_open_recreates_the_queue(queue: AnyQueue, storage: Storage) -> None:
    await queue.add("n")
    async with Queue[Any, Any](queue.name, storage) as other:
        await other.connect()
        await queue.obliterate()
        await other.upsert_job_scheduler("s", every=60)
        await queue.add("n")
        async with Queue[Any, Any](queue.name, storage) as third:
            assert await third.count() == 1
        await other.remove_job_scheduler("s")


HANDMADE = {
    "an entry that was acknowledged": ["XACK {fifo} workers {entry}"],
    "a group that begins behind the entries": ["XGROUP DESTROY {fifo} workers", "XGROUP CREATE {fifo} workers $"],
    "a position behind the entries": ["XGROUP SETID {fifo} workers $"],
    "an entry without a job": ["XADD {fifo} * x 1"],
    "a run without a token": ["ZADD {base}:runs 1 x"],
    "a structure without a flag": ["ZADD {base}:suspended 1 x", "ZADD {base}:parents 1 y", "ZADD {base}:returned 1 z"],
}


@pytest.mark.parametrize("made", HANDMADE)
async def test_obliterating_ends_with_structures_made_by_hand(queue: AnyQueue, store: RunningStore, made: str) -> None:
    await add_kind(queue, 5)
    await add_kind(queue, 2, priority=5)
    fake_worker = FakeWorker(queue, store)
    lease = (await fake_worker.claim(3))[0]
    base = fake_worker.base
    for command in HANDMADE[made]:
        await store.ask(*command.format(base=base, fifo=f"{base}:fifo", entry=lease.entry[1:]).split())
    await soon(queue.obliterate(force=True), 10)
    assert await keys_of(queue, store) == []


@pytest.mark.parametrize(("number", "children"), [(200, 3), (4, 400)])
async def test_jobs_that_their_flows_remove_are_counted(
    queue: AnyQueue, storage: Storage, number: int, children: int
) -> None:
    flow = FlowJob("parent", queue.name, children=[FlowJob("child", queue.name) for _ in range(children)])
    async with FlowProducer(storage) as flows:
        await flows.add_bulk([flow] * number)
    total = number * (children + 1)
    assert (await counts(queue)) == {"waiting": number * children, "waiting-children": number}
    functions = Functions(queue.storage, f"glide:{{{queue.name}}}")
    step, removed = ObliterateStep("", 0, 0), 0
    while not step.is_empty:
        step = await functions.obliterate.step(step.cursor, (), force=False)
        removed += step.removed
    assert removed == total
    async with listening(queue, after="0") as events:
        while (event := await events.next()).kind != "obliterated":
            pass
    assert event.detail == str(total)
    assert await queue.obliterate() == 0
