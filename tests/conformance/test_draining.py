"""Draining removes waiting jobs in short steps, with all their data. Active jobs continue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glidemq_async import FlowJob, FlowProducer, JobNotFound, JobOptions
from glidemq_async.storage import Storage
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyQueue, Gate, counts, echo, history, listening, soon, worker_of
from tests.support.stores import RunningStore
from tests.support.waiting_jobs import EVERY_KIND, add_kind, waited_for


async def left(store: RunningStore) -> list[str]:
    """Return the keys of single jobs among all keys."""
    return [key for key in await store.keys() if not key.endswith(_OF_THE_QUEUE) and ":call:" not in key]


_OF_THE_QUEUE = (":id", ":meta", ":meta2", ":events", ":fifo", ":sequence")


@pytest.mark.everywhere
async def test_draining_removes_waiting_jobs(queue: AnyQueue, store: RunningStore) -> None:
    await queue.add_bulk([("n", number) for number in range(7)])
    await queue.add("n", job_id="custom", ttl=60)
    delayed = await queue.add("n", delay=60)
    assert await queue.drain() == 8
    assert await queue.get_job_counts() | {"waiting": 0, "delayed": 1} == await queue.get_job_counts()
    assert await delayed.get_state() == "delayed"
    assert await queue.drain(delayed=True) == 1
    assert set((await queue.get_job_counts()).values()) == {0}
    assert await left(store) == []


@pytest.mark.everywhere
async def test_active_and_ended_jobs_stay(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, echo):
        done = await queue.add("n", 1)
        assert await done.result(10) == 1
    async with worker_of(queue, gate, concurrency=2):
        running = await queue.add_bulk([("n", 1), ("n", 2)])
        for _ in running:
            await gate.running()
        await queue.add_bulk([("n", number) for number in range(5)])
        assert await queue.drain(delayed=True) == 5
        gate.release()
        assert [await job.result(10) for job in running] == [1, 2]
    assert await done.get_state() == "completed"


@pytest.mark.everywhere
@pytest.mark.parametrize("kind", sorted(EVERY_KIND))
async def test_draining_removes_every_kind_of_job(queue: AnyQueue, store: RunningStore, kind: str) -> None:
    await add_kind(queue, 1, **EVERY_KIND[kind])
    delayed = await add_kind(queue, 1, **EVERY_KIND[kind] | {"delay": 60_000, "dedup": {"id": "e", "mode": "simple"}})
    assert await queue.drain() == 1
    assert [job.id async for job in queue.iter_jobs("delayed")] == delayed
    assert await queue.drain(delayed=True) == 1
    assert await left(store) == []


@pytest.mark.parametrize("kind", ["prioritized", "lifo", "keyed"])
async def test_draining_removes_many_jobs_of_one_kind(queue: AnyQueue, store: RunningStore, kind: str) -> None:
    await add_kind(queue, 1_100, **EVERY_KIND[kind])
    assert await queue.drain() == 1_100
    assert await left(store) == []


async def test_draining_removes_jobs_of_many_keys(queue: AnyQueue, store: RunningStore) -> None:
    for number in range(60):
        await add_kind(queue, 3, key=f"k{number}")
    assert await queue.drain() == 180
    assert await left(store) == []


async def test_a_drained_key_is_free_again(queue: AnyQueue, store: RunningStore) -> None:
    fake_worker = FakeWorker(queue, store)
    await add_kind(queue, 5, key="k")
    (held,) = await fake_worker.claim(5)
    assert await queue.drain() == 4
    (later,) = await add_kind(queue, 1, key="k")
    assert await fake_worker.claim() == [], "it must wait for the active job"
    assert await fake_worker.settle(held) is None
    (after,) = await fake_worker.claim()
    assert after.id == later
    await fake_worker.settle(after)
    await fake_worker.leave()


async def test_a_key_whose_job_waits_for_its_next_attempt_is_free_after_a_drain(
    queue: AnyQueue, store: RunningStore
) -> None:
    fake_worker = FakeWorker(queue, store)
    await add_kind(queue, 2, key="k")
    (held,) = await fake_worker.claim()
    await fake_worker.settle(held, "r", "60000 broken")
    assert await fake_worker.claim() == []
    assert await queue.drain(delayed=True) == 2
    (later,) = await add_kind(queue, 1, key="k")
    assert [lease.id for lease in await fake_worker.claim()] == [later]
    await fake_worker.leave()
    await queue.drain()


async def test_a_drained_owner_frees_its_deduplication_id(queue: AnyQueue) -> None:
    first = await add_kind(queue, 1, dedup={"id": "d", "mode": "simple"})
    assert await add_kind(queue, 1, dedup={"id": "d", "mode": "simple"}) == first
    await queue.drain()
    assert await add_kind(queue, 1, dedup={"id": "d", "mode": "simple"}) != first


async def test_draining_removes_released_jobs(queue: AnyQueue, store: RunningStore) -> None:
    fake_worker = FakeWorker(queue, store)
    await queue.add_bulk([("n", number) for number in range(3)])
    held = await fake_worker.claim(2)
    await fake_worker.settle(held[0], "b")
    assert await queue.drain() == 2
    assert await fake_worker.settle(held[1]) is None
    await fake_worker.leave()
    assert (await queue.get_job_counts())["completed"] == 1


async def test_many_jobs_are_drained_in_many_steps(queue: AnyQueue, store: RunningStore) -> None:
    options = JobOptions(ttl=60)
    await queue.add_bulk([("n", number, options) for number in range(1_234)])
    await queue.add_bulk([("n", number, JobOptions(delay=60)) for number in range(1_234)])
    async with listening(queue) as events:
        assert await queue.drain(delayed=True) == 2 * 1_234
        event = await events.next()
    assert (event.kind, event.job_id, event.detail) == ("drained", "", str(2 * 1_234))
    assert await left(store) == []


async def test_a_drain_with_effect_publishes_one_event(queue: AnyQueue) -> None:
    assert await queue.drain() == 0
    await queue.add("n")
    assert await queue.drain() == 1
    assert await queue.drain(delayed=True) == 0
    assert [(event.kind, event.detail) for event in await history(queue)] == [("added", "n"), ("drained", "1")]


@pytest.mark.everywhere
async def test_a_client_that_waits_for_a_drained_job_is_notified(queue: AnyQueue, store: RunningStore) -> None:
    waiting = [asyncio.ensure_future(queue.add_and_wait("n", number, wait_timeout=30)) for number in range(3)]
    job = await queue.add("n", delay=60)
    waiting.append(asyncio.ensure_future(job.result(30)))
    await waited_for(queue, store, len(waiting))
    assert await queue.drain(delayed=True) == 4
    for waiter in waiting:
        with pytest.raises(JobNotFound):
            await soon(waiter, 3)


async def test_draining_removes_logs(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n")
    await job.log("a line")
    await queue.drain()
    assert await left(store) == []


async def test_draining_removes_every_initial_job_while_adds_continue(queue: AnyQueue) -> None:
    first = {job.id for job in await queue.add_bulk([("n", number) for number in range(3_000)])}
    first |= {job.id for job in await queue.add_bulk([("n", 1, JobOptions(delay=60)) for _ in range(1_000)])}
    stop = asyncio.Event()

    async def keep_adding() -> int:
        added = 0
        while not stop.is_set():
            await queue.add_bulk([("n", 1), ("n", 2, JobOptions(delay=60))] * 20)
            added += 40
        return added

    adding = asyncio.create_task(keep_adding())
    removed = await soon(queue.drain(delayed=True))
    stop.set()
    added = await adding
    present = {job.id for state in ("waiting", "delayed") async for job in queue.iter_jobs(state)}
    assert not present & first
    assert len(present) == len(first) + added - removed


async def test_draining_during_work_loses_no_run(queue: AnyQueue) -> None:
    ran: list[Any] = []

    async def note(job: Any) -> None:
        ran.append(job.data)

    async with worker_of(queue, note, concurrency=10):
        await queue.add_bulk([("n", number) for number in range(2_000)])
        removed = await queue.drain()
        last = await queue.add("last", -1)
        await last.result(10)
    assert len(ran) == len(set(ran)) == 2_000 - removed + 1


async def test_a_record_in_another_location_is_not_removed(queue: AnyQueue, store: RunningStore) -> None:
    base = f"glide:{{{queue.name}}}"
    job = await queue.add("n", delay=60)
    for structure in ("returned", "lifo"):
        await store.ask("ZADD", f"{base}:{structure}", 1, job.id)
    await store.ask("ZADD", f"{base}:keyed", 1, "nobody")
    await queue.drain()
    assert await job.get_state() == "delayed"
    assert await queue.check() == []


async def test_a_paused_queue_can_be_drained(queue: AnyQueue) -> None:
    await queue.pause()
    await queue.add("n")
    assert await queue.drain() == 1
    assert await queue.is_paused()


async def test_bad_arguments_are_refused(queue: AnyQueue) -> None:
    with pytest.raises(TypeError, match="delayed must be True or False, got 1"):
        await queue.drain(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_jobs_that_their_flows_remove_are_counted(queue: AnyQueue, storage: Storage) -> None:
    flow = FlowJob("parent", queue.name, children=[FlowJob("child", queue.name) for _ in range(400)])
    async with FlowProducer(storage) as flows, listening(queue) as events:
        await flows.add_bulk([flow] * 4)
        assert await queue.drain() == 1_600
        while (event := await events.next()).kind != "drained":
            pass
    assert event.detail == "1600"
    assert await counts(queue) == {"failed": 4}
