"""Flows over several queues, which may be in different cluster slots: messages arrive once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from glidemq_async import (
    DagNode,
    FlowJob,
    FlowProducer,
    JobFailed,
    JobOptions,
    JobRef,
    Queue,
    UnrecoverableError,
)
from glidemq_async.client.outbox import Outbox
from glidemq_async.client.queue_client import QueueClient
from tests.support.helpers import PATIENCE, AnyJob, AnyQueue, Gate, counts, worker_of

pytestmark = pytest.mark.everywhere


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


async def handle(job: AnyJob) -> Any:
    if job.name == "bad":
        raise UnrecoverableError("boom")
    return [*(await job.get_children_values()).values()] or job.data


async def settled(queues: tuple[AnyQueue, ...]) -> list[dict[str, int]]:
    """Wait until no job of these queues is left that has not ended. Return the counts."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = [await counts(each) for each in queues]
            if all(not set(states) - {"completed", "failed"} for states in found):
                return found
            await asyncio.sleep(0.01)


async def relay(queue: AnyQueue) -> None:
    """Relay the outbox of a queue, as one of its workers would."""
    await Outbox(QueueClient(queue.name, queue.storage, prefix="glide", mode=None), "test").relay()


async def test_a_tree_over_three_queues_runs_from_its_leaves(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    second, third = others
    node = await flows.add(
        FlowJob(
            "root",
            queue.name,
            children=[
                FlowJob(
                    "middle", second.name, children=[FlowJob("leaf", third.name, 1), FlowJob("leaf", queue.name, 2)]
                ),
                FlowJob("leaf", third.name, 3),
            ],
        )
    )
    middle = node.children[0].job
    assert await middle.get_state() == "waiting-children"
    assert middle.parent == JobRef(queue.name, node.job.id)
    assert await counts(second) == {"waiting-children": 1}
    async with worker_of(queue, handle), worker_of(second, handle), worker_of(third, handle):
        assert await node.job.result(PATIENCE) == [[1, 2], 3]
    assert await settled((queue, *others)) == [{"completed": 2}, {"completed": 1}, {"completed": 2}]


async def test_a_failure_passes_through_the_queues_to_the_root(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    second, third = others
    gate = Gate()
    node = await flows.add(
        FlowJob(
            "root",
            queue.name,
            children=[
                FlowJob("middle", second.name, children=[FlowJob("bad", third.name)]),
                FlowJob("slow", queue.name),
                FlowJob("never", third.name, options=JobOptions(delay=600)),
            ],
        )
    )
    middle, bad = node.children[0].job, node.children[0].children[0].job
    async with worker_of(queue, gate), worker_of(second, handle):
        slow = await gate.running()
        async with worker_of(third, handle):
            with pytest.raises(JobFailed) as caught:
                await node.job.result(PATIENCE)
        assert caught.value.message == f"middle {middle.id} > bad {bad.id}: UnrecoverableError: boom"
        assert (await gate.stopped()).id == slow.id
        assert await settled((queue, *others)) == [{"failed": 2}, {"failed": 1}, {"failed": 1}]


async def test_removing_a_child_in_another_queue_fails_the_root(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    second, _ = others
    node = await flows.add(FlowJob("root", queue.name, children=[FlowJob("leaf", second.name)]))
    await node.children[0].job.remove()
    await relay(second)
    await node.job.refresh()
    assert node.job.failed_reason == f"child_failed: leaf {node.children[0].job.id}: removed"


async def test_an_idle_worker_relays_the_removal_of_a_child(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    second, _ = others
    node = await flows.add(
        FlowJob("root", queue.name, children=[FlowJob("leaf", second.name, options=JobOptions(delay=600))])
    )
    async with worker_of(second, handle):
        await node.children[0].job.revoke()
        with pytest.raises(JobFailed, match="revoked"):
            await node.job.result(PATIENCE)


async def test_removing_the_root_removes_its_children_in_other_queues(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    second, third = others
    node = await flows.add(
        FlowJob("root", queue.name, children=[FlowJob("middle", second.name, children=[FlowJob("leaf", third.name)])])
    )
    await node.job.remove()
    await relay(queue)
    assert [await counts(each) for each in (queue, *others)] == [{}, {}, {}]


async def test_obliterating_the_queue_of_a_child_fails_the_root(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    second, _ = others
    node = await flows.add(FlowJob("root", queue.name, children=[FlowJob("leaf", second.name)]))
    await second.obliterate()
    await node.job.refresh()
    assert node.job.failed_reason == f"child_failed: leaf {node.children[0].job.id}: removed"
    await second.connect()


async def test_obliterating_the_queue_of_the_root_removes_its_children_elsewhere(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    second, third = others
    leaves = [FlowJob("leaf", third.name) for _ in range(100)]
    await flows.add(FlowJob("root", queue.name, children=[FlowJob("middle", second.name), *leaves]))
    await queue.obliterate()
    assert [await counts(each) for each in others] == [{}, {}]
    await queue.connect()


async def test_a_child_that_its_queue_refuses_fails_its_parent(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer, name: str
) -> None:
    second, _ = others
    await second.add("n", 1, job_id="taken")
    node = await flows.add(
        FlowJob("root", queue.name, children=[FlowJob("leaf", second.name, options=JobOptions(job_id="taken"))])
    )
    await node.job.refresh()
    assert node.job.failed_reason == "child_failed: leaf taken: duplicate: a job with this id exists"


async def test_a_graph_shares_a_node_between_queues(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    second, third = others
    jobs = await flows.add_dag(
        [
            DagNode("load", third.name, 2),
            DagNode("left", second.name, deps=["load"]),
            DagNode("right", queue.name, deps=["load"]),
            DagNode("both", queue.name, deps=["left", "right"]),
        ]
    )
    assert len(jobs["load"].parents) == 2
    async with worker_of(queue, handle), worker_of(second, handle), worker_of(third, handle):
        assert await jobs["both"].result(PATIENCE) == [[2], [2]]
    await settled((queue, *others))


async def test_a_relay_that_dies_at_any_step_loses_nothing(
    queue: AnyQueue, others: tuple[AnyQueue, AnyQueue], flows: FlowProducer
) -> None:
    """Each message is delivered twice; the second delivery has no effect."""
    second, _ = others
    node = await flows.add(FlowJob("root", queue.name, children=[FlowJob("leaf", second.name, n) for n in range(5)]))
    await worker_of(second, handle).run(until_empty=True)
    for each in (queue, second, queue, second):
        await relay(each)
    await worker_of(queue, handle).run(until_empty=True)
    assert await node.job.result(PATIENCE) == [0, 1, 2, 3, 4]
