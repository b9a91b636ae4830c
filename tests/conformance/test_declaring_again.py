"""Clients that stay open repeat their declarations after a queue was obliterated or lost with its server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from glidemq_async import FlowJob, FlowProducer, IncompatibleQueueError, JobOptions, Queue, UnrecoverableError, Worker
from glidemq_async.storage import Arg, Storage
from tests.support.helpers import AnyJob, AnyQueue, Gate, Heard, counts, echo, ended, worker_of
from tests.support.recording_storage import Relay
from tests.support.stores import RunningStore


async def give_up(job: AnyJob) -> None:
    raise UnrecoverableError(str(job.data))


async def arrived(dead: AnyQueue, number: int) -> None:
    """Wait until this many dead letters were moved."""
    async with asyncio.timeout(10):
        while await dead.count() < number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.everywhere
async def test_the_mode_is_declared_again_by_the_next_add(queue: AnyQueue, storage: Storage) -> None:
    async with Queue[Any, Any](queue.name + "-k", storage, mode="keyed") as declares:
        await declares.add("n", 1, key="k")
        async with Queue[Any, Any](declares.name, storage) as another:
            assert await another.obliterate() == 1
        assert (await declares.add("n", 2, key="k")).id == "1"
        with pytest.raises(IncompatibleQueueError, match=r"mode global.*mode keyed"):
            await Queue[Any, Any](declares.name, storage, mode="global").connect()
        assert await counts(declares) == {"key-waiting": 1}


async def test_many_concurrent_adds_declare_it_once(storage: Storage, name: str) -> None:
    relay = Relay(storage)
    async with Queue[Any, Any](name, relay, mode="keyed") as declares, Queue[Any, Any](name, storage) as other:
        await declares.connect()
        await other.obliterate()
        relay.calls.clear()
        await asyncio.gather(*(declares.add("n", number, key="k") for number in range(20)))
        jobs = await declares.add_bulk([("n", number, JobOptions(key="k")) for number in range(3)])
        assert [job.outcome for job in jobs] == ["added"] * 3
        assert relay.calls.count("openQueue") == 1
        assert await counts(declares) == {"key-waiting": 23}


async def test_a_client_declares_its_mode_although_another_client_recreated_the_queue(
    storage: Storage, name: str
) -> None:
    """The queue exists again without a mode. The client that declared the mode repeats it with its next add."""
    async with Queue[Any, Any](name, storage) as first, Queue[Any, Any](name, storage, mode="keyed") as declares:
        await declares.connect()
        await first.obliterate()
        await first.add("n", 1)
        await declares.add("n", 2, key="k")
        with pytest.raises(IncompatibleQueueError, match="keyed"):
            await first.add("n", 3)
        assert await counts(first) == {"waiting": 1, "key-waiting": 1}


async def test_a_client_without_a_declaration_accepts_the_new_queue(storage: Storage, name: str) -> None:
    async with AsyncExitStack() as stack:
        declared = await stack.enter_async_context(Queue[Any, Any](name, storage, mode="keyed"))
        follower = await stack.enter_async_context(Queue[Any, Any](name, storage))
        other = await stack.enter_async_context(Queue[Any, Any](name, storage))
        await declared.close()
        with pytest.raises(ValueError, match="keyed"):
            await follower.add("n", 1)
        await other.obliterate()
        assert (await follower.add("n", 1)).id == "1"
        assert [job.id for job in await follower.add_bulk([("n", 2), ("n", 3)])] == ["2", "3"]
        await follower.upsert_job_scheduler("s", every=60)
        await follower.remove_job_scheduler("s")


async def test_the_mode_of_a_recreated_queue_is_not_overwritten(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage, mode="keyed") as early, Queue[Any, Any](name, storage) as other:
        await early.connect()
        await other.obliterate()
        async with Queue[Any, Any](name, storage, mode="global") as late:
            with pytest.raises(IncompatibleQueueError, match=r"mode keyed.*mode global"):
                await early.add("n", 1, key="k")
            assert await counts(late) == {}


@pytest.mark.everywhere
@pytest.mark.parametrize("size", [1, 400_000], ids=["in one call", "in several calls"])
async def test_a_flow_is_added_to_a_recreated_queue(queue: AnyQueue, storage: Storage, size: int) -> None:
    data = "x" * size
    flow = FlowJob("parent", queue.name, data, children=[FlowJob("child", queue.name, data) for _ in range(2)])
    async with FlowProducer(storage) as flows:
        await flows.add(flow)
        assert await queue.obliterate() == 3
        first, second = await asyncio.gather(flows.add(flow), flows.add(flow))
        assert {await node.job.get_state() for node in (first, second)} == {"waiting-children"}
        assert await counts(queue) == {"waiting": 4, "waiting-children": 2}
        assert await queue.check() == []


async def test_a_flow_that_does_not_fit_a_recreated_queue_is_refused(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue, FlowProducer(storage) as flows:
        await flows.add(FlowJob("n", name))
        await queue.obliterate()
        async with Queue[Any, Any](name, storage, mode="keyed"):
            with pytest.raises(ValueError, match="keyed"):
                await flows.add(FlowJob("n", name))
            assert await counts(queue) == {}


@pytest.mark.everywhere
async def test_a_worker_declares_its_dead_letter_queue_again(queue: AnyQueue, storage: Storage) -> None:
    dead = Queue[Any, Any](f"{queue.name}-dead", storage)
    async with dead, worker_of(queue, give_up, dead_letter_queue=dead.name):
        await ended(await queue.add("n", 1))
        await arrived(dead, 1)
        await queue.obliterate()
        await ended(await queue.add("n", 2))
        await arrived(dead, 2)
        assert await queue.get_dead_letter_queue() == dead.name


async def test_a_busy_worker_declares_before_it_claims_jobs_of_the_new_queue(queue: AnyQueue, storage: Storage) -> None:
    gate = Gate()

    async def work(job: AnyJob) -> Any:
        if job.data == "new":
            raise UnrecoverableError("no")
        return await gate(job)

    async with Queue[Any, Any](f"{queue.name}-dead", storage) as dead:
        async with worker_of(queue, work, concurrency=2, dead_letter_queue=dead.name, mode="global") as worker:
            lost = Heard(worker, "lease_lost")
            await queue.add_bulk([("n", "old"), ("n", "old")])
            await gate.running()
            await gate.running()
            await queue.obliterate(force=True)
            await lost.next()
            await ended(await queue.add("n", "new"))
            await arrived(dead, 1)
        with pytest.raises(IncompatibleQueueError, match=r"mode keyed.*mode global"):
            await Queue[Any, Any](queue.name, storage, mode="keyed").connect()


async def test_settings_made_by_a_call_are_removed_with_the_queue(queue: AnyQueue, storage: Storage) -> None:
    await queue.set_dead_letter_queue("elsewhere")
    await queue.obliterate()
    await queue.add("n")
    assert await queue.get_dead_letter_queue() is None


async def test_a_worker_that_no_longer_fits_raises_and_claims_nothing(queue: AnyQueue, storage: Storage) -> None:
    relay = Relay(storage)

    async def declare_another(function: str, _args: Sequence[Arg]) -> None:
        if function == "openQueue":
            relay.before_call = None
            await Queue[Any, Any](queue.name, storage, mode="keyed").connect()

    async with Worker(queue.name, echo, relay, mode="global", handle_signals=False) as worker:
        errors = Heard(worker, "error")
        assert await queue.add_and_wait("n", 1, wait_timeout=10) == 1
        relay.before_call = declare_another
        await queue.obliterate()
        (error,) = await errors.next()
        assert isinstance(error, IncompatibleQueueError)
        await queue.add("n", 1, key="k")
    assert await counts(queue) == {"key-waiting": 1}


async def test_a_queue_lost_with_its_server_is_declared_again(storage: Storage, store: RunningStore, name: str) -> None:
    async with Queue[Any, Any](name, storage, mode="keyed") as queue:
        await queue.add("n", 1, key="k")
        await store.command("FLUSHALL")
        await queue.add("n", 2, key="k")
        with pytest.raises(IncompatibleQueueError, match="keyed"):
            await Queue[Any, Any](name, storage, mode="global").connect()
