"""Cancelling a flow: when the call returns, no job below the cancelled one starts any more, in any queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from glidemq_async import DagNode, FlowJob, FlowProducer, JobFailed, JobOptions, Queue
from glidemq_async.client.outbox import Outbox, reach_descendants
from glidemq_async.functions.inbox import Delivery
from glidemq_async.queues.internals import client_of
from tests.support.helpers import AnyJob, AnyQueue, Gate, counts, history, soon, worker_of

pytestmark = pytest.mark.everywhere
LATER = JobOptions(delay=3_600)


@pytest.fixture
async def flows(queue: AnyQueue) -> AsyncIterator[FlowProducer]:
    async with FlowProducer(queue.storage) as producer:
        yield producer


@pytest.fixture
async def others(queue: AnyQueue, flows: FlowProducer) -> AsyncIterator[tuple[AnyQueue, AnyQueue]]:
    """Two more queues. All queues are sound after the test."""
    async with AsyncExitStack() as stack:
        second, third = [
            await stack.enter_async_context(Queue[Any, Any](f"{queue.name}-{n}", queue.storage)) for n in (2, 3)
        ]
        yield second, third
        for each in (queue, second, third):
            assert await each.check() == []


def tree(names: tuple[str, ...], width: int, depth: int) -> FlowJob:
    """Return a tree whose levels are in these queues by turns."""
    children = [tree((*names[1:], names[0]), width, depth - 1) for _ in range(width)] if depth else []
    return FlowJob(f"level {depth}", names[0], children=children)


def where(job: AnyJob) -> tuple[str, str]:
    """Return the queue and the id of a job."""
    return job.queue, job.id


@pytest.mark.parametrize("how", ["revoke", "remove"])
async def test_nothing_of_a_tree_over_three_queues_starts_after_its_root_was_cancelled(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer, how: str
) -> None:
    second, third = others
    queues, gate = (queue, second, third), Gate()
    node = await flows.add(tree((queue.name, second.name, third.name), 6, 3))
    # 216 leaves are in the first queue. The worker stays away from the other two: their jobs wait for the leaves.
    async with worker_of(queue, gate, concurrency=5):
        running = {(await gate.running()).id for _ in range(5)}
        await (node.job.revoke() if how == "revoke" else node.job.remove())
        left = [await counts(each) for each in queues]
        assert [set(states) <= {"active", "failed"} for states in left] == [True, True, True], left
        assert {(await gate.stopped()).id for _ in range(5)} == running
        async with worker_of(second, gate), worker_of(third, gate):
            last = [await each.add("last") for each in queues]
            assert {(await gate.running()).queue for _ in queues} == {each.name for each in queues}
            gate.release()
            for job in last:
                await job.result(timeout=10)
    assert gate.started.empty()


async def test_a_tree_is_cancelled_depth_first(queue: AnyQueue, flows: FlowProducer) -> None:
    # The server cancels 32 children of a job at a time. The jobs below them come before the other children.
    middles = [FlowJob("middle", queue.name, children=[FlowJob("leaf", queue.name)] * 2) for _ in range(40)]
    node = await flows.add(FlowJob("root", queue.name, children=middles))
    await node.job.revoke()
    removed = [event.job_id for event in await history(queue) if event.kind == "removed"]
    assert len(removed) == 120
    place = {job_id: number for number, job_id in enumerate(removed)}
    first, last = node.children[0], node.children[-1]
    assert max(place[leaf.job.id] for leaf in last.children) < place[first.job.id]


async def test_running_jobs_of_other_queues_are_stopped(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    second, third = others
    gate = Gate()
    leaves = [FlowJob("leaf", each.name) for each in (second, third) for _ in range(4)]
    node = await flows.add(FlowJob("root", queue.name, children=[FlowJob("middle", third.name, children=leaves)]))
    async with worker_of(second, gate, concurrency=2), worker_of(third, gate, concurrency=2):
        running = {where(await gate.running()) for _ in range(4)}
        assert await node.job.revoke("not needed")
        assert {where(await gate.stopped()) for _ in range(4)} == running
    assert gate.started.empty()
    with pytest.raises(JobFailed, match="revoked: not needed"):
        await node.job.result()
    assert [await counts(each) for each in (queue, second, third)] == [{"failed": 1}, {"failed": 2}, {"failed": 2}]


async def test_a_graph_is_cancelled_up_to_the_jobs_that_another_parent_needs(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    second, third = others
    jobs = await flows.add_dag(
        [
            DagNode("load", third.name, options=LATER),
            DagNode("shared", second.name, deps=["load"]),
            DagNode("alone", second.name, deps=["load"]),
            DagNode("report", queue.name, deps=["shared", "alone"]),
            DagNode("other", third.name, deps=["shared"]),
        ]
    )
    await jobs["report"].revoke()
    assert await counts(second) == {"waiting-children": 1}
    assert await jobs["shared"].get_state() == "waiting-children"
    assert await counts(third) == {"waiting-children": 1, "delayed": 1}
    await jobs["other"].revoke()
    assert [await counts(each) for each in (queue, second, third)] == [{"failed": 1}, {}, {"failed": 1}]


async def test_a_relay_that_stands_still_does_not_delay_a_cancellation(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    second, _ = others
    first, later = [
        await flows.add(FlowJob("root", queue.name, children=[FlowJob("leaf", second.name)])) for _ in range(2)
    ]
    functions = client_of(queue).functions
    assert (await functions.jobs.revoke(first.job.id)).rest
    held = await functions.outbox.relay("stands still", "", [])
    assert len(held.posted) == 1
    await Outbox(client_of(queue), "another").relay()
    assert await counts(second) == {"waiting": 2}
    await later.job.revoke()
    assert await counts(second) == {}
    # The relay goes on. Its message is refused, because it has arrived before.
    await functions.outbox.relay("stands still", held.last, [one.entry for one in held.posted])


async def test_a_job_whose_end_is_delivered_by_a_worker_reaches_the_jobs_below_it(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    second, third = others
    node = await flows.add(
        FlowJob(
            "root",
            queue.name,
            children=[FlowJob("middle", second.name, children=[FlowJob("leaf", third.name, options=LATER)])],
        )
    )
    source, home = client_of(second).functions, client_of(queue).functions
    ending = await source.jobs.revoke(node.children[0].job.id)
    # A worker delivers the end to the queue with the plan, and has not delivered what follows from that.
    held = await source.outbox.relay("worker", "", [])
    await home.inbox.deliver([Delivery(f"{source.caller.base}/{one.entry}", *one[2:]) for one in held.posted])
    await source.outbox.relay("worker", held.last, [one.entry for one in held.posted])
    assert await counts(third) == {"delayed": 1}
    await reach_descendants(client_of(second), ending.rest)
    assert [await counts(each) for each in (queue, second, third)] == [{"failed": 1}, {"failed": 1}, {}]


class Spawner:
    """A handler that adds children, and then works on however often it is cancelled, until the test releases it."""

    def __init__(self, flows: FlowProducer, *children: FlowJob) -> None:
        self.flows, self.children = flows, children
        self.ready, self.cancelled, self.open = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, job: AnyJob) -> None:
        await self.flows.add_children(job, self.children)
        self.ready.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            await self.open.wait()
            await self.flows.add_children(job, self.children)
            await job.move_to_waiting_children()


async def test_the_children_of_a_run_are_cancelled_with_it(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    second, third = others
    below = FlowJob("below", third.name, children=[FlowJob("lowest", second.name, options=LATER)])
    handler = Spawner(flows, FlowJob("leaf", queue.name, options=LATER), below)
    async with worker_of(queue, handler):
        job = await queue.add("parent")
        await soon(handler.ready.wait())
        assert await counts(third) == {"waiting-children": 1}
        assert not await job.revoke()
        # The handler has not ended.
        assert [await counts(each) for each in (queue, second, third)] == [{"active": 1}, {}, {}]
        await soon(handler.cancelled.wait())
        handler.open.set()
        with pytest.raises(JobFailed, match="revoked"):
            await job.result(timeout=10)
    assert [await counts(each) for each in (queue, second, third)] == [{"failed": 1}, {}, {}]


async def test_a_run_that_is_revoked_adds_no_children(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    second, third = others
    ready, gate = asyncio.Event(), Gate()

    async def spawn_late(job: AnyJob) -> Any:
        if job.name != "parent":
            return await gate(job)
        ready.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await flows.add_children(job, [FlowJob("leaf", each.name) for each in (queue, second, third)])
            raise

    async with worker_of(queue, spawn_late), worker_of(second, gate), worker_of(third, gate):
        job = await queue.add("parent")
        await soon(ready.wait())
        await job.revoke()
        with pytest.raises(JobFailed, match="revoked"):
            await job.result(timeout=10)
    assert gate.started.empty()
    assert [await counts(each) for each in (queue, second, third)] == [{"failed": 1}, {}, {}]


async def test_the_run_of_a_child_is_cancelled_with_its_own_children(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    second, third = others
    handler = Spawner(flows, FlowJob("leaf", second.name, options=LATER), FlowJob("leaf", third.name, options=LATER))
    node = await flows.add(FlowJob("root", queue.name, children=[FlowJob("parent", second.name)]))
    async with worker_of(second, handler):
        await soon(handler.ready.wait())
        await node.job.revoke()
        assert [await counts(each) for each in (queue, second, third)] == [{"failed": 1}, {"active": 1}, {}]
        await soon(handler.cancelled.wait())
        handler.open.set()
    assert [await counts(each) for each in (queue, second, third)] == [{"failed": 1}, {"failed": 1}, {}]
