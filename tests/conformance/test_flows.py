"""Flows: a parent runs once, after all of its children, and each end of a child resolves its parent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from glidemq_async import (
    DagNode,
    FlowJob,
    FlowProducer,
    JobFailed,
    JobNode,
    JobNotFound,
    JobOptions,
    JobRef,
    JobStateError,
    Queue,
    QueueEvent,
    QueueEvents,
    UnrecoverableError,
)
from glidemq_async.flows import plan
from glidemq_async.functions.callers import Functions
from glidemq_async.storage import Storage
from glidemq_async.stored.record import State
from tests.support.helpers import AnyJob, AnyQueue, Gate, counts, soon, worker_of
from tests.support.recording_storage import Relay
from tests.support.stores import RunningStore

pytestmark = pytest.mark.everywhere


@pytest.fixture
async def flows(queue: AnyQueue) -> AsyncIterator[FlowProducer]:
    async with FlowProducer(queue.storage) as producer:
        yield producer
    assert await queue.check() == []


def tree(queue: AnyQueue, *children: FlowJob, name: str = "root", **options: Any) -> FlowJob:
    return FlowJob(name, queue.name, children=children, **options)


def leaf(queue: AnyQueue, name: str = "leaf", data: Any = None, **options: Any) -> FlowJob:
    return FlowJob(name, queue.name, data, **options)


async def gather(job: AnyJob) -> Any:
    """A handler: leaves return their data or fail, and parents return a list of the values of their children."""
    if job.name == "bad":
        raise UnrecoverableError("boom")
    values = await job.get_children_values()
    return [value.message if isinstance(value, JobFailed) else value for value in values.values()] or job.data


async def run(queue: AnyQueue, handler: Callable[[AnyJob], Awaitable[Any]] = gather) -> None:
    """Run every job that can start."""
    await soon(worker_of(queue, handler).run(until_empty=True))


async def counts_after_work(queue: AnyQueue) -> dict[str, int]:
    """Do the work of flows that earlier calls had no time for, as a worker would. Return the counts."""
    while await Functions(queue.storage, f"glide:{{{queue.name}}}").flows.advance():
        pass
    return await counts(queue)


async def state_of(job: AnyJob) -> State:
    return await job.get_state()


async def test_a_parent_runs_after_its_children_and_reads_their_values_in_order(
    queue: AnyQueue, flows: FlowProducer
) -> None:
    node = await flows.add(tree(queue, leaf(queue, data=1), tree(queue, leaf(queue, data=2), leaf(queue, data=3))))
    assert node.job.state == "waiting-children"
    assert [child.job.state for child in node.children] == ["waiting", "waiting-children"]
    assert await counts_after_work(queue) == {"waiting": 3, "waiting-children": 2}
    assert await queue.check() == []
    await run(queue)
    assert await node.job.result() == [1, [2, 3]]
    assert await counts_after_work(queue) == {"completed": 5}


async def test_parents_are_listed_read_and_named(queue: AnyQueue, flows: FlowProducer) -> None:
    node = await flows.add(tree(queue, leaf(queue)))
    [child] = node.children
    [listed] = await queue.get_jobs("waiting-children")
    assert (listed.id, listed.state, listed.parent) == (node.job.id, "waiting-children", None)
    for job in (child.job, await queue.get_job(child.job.id)):
        assert job is not None
        assert job.parent == JobRef(queue.name, node.job.id)
    assert [job.id for job in await queue.search_jobs("waiting-children")] == [node.job.id]
    dependencies = await listed.get_dependencies()
    assert dependencies.pending == (JobRef(queue.name, child.job.id),)


async def test_a_handler_knows_its_parent(queue: AnyQueue, flows: FlowProducer) -> None:
    seen: list[JobRef | None] = []

    async def note(job: AnyJob) -> None:
        seen.append(job.parent)

    node = await flows.add(tree(queue, leaf(queue, options=JobOptions(headers={"a": "b"}, attempts=3))))
    await run(queue, note)
    assert seen == [JobRef(queue.name, node.job.id), None]


async def test_events_tell_that_a_parent_waits_and_starts(queue: AnyQueue, flows: FlowProducer) -> None:
    node = await flows.add(tree(queue, leaf(queue)))
    await run(queue)
    kinds: list[str] = []
    async with QueueEvents(queue.name, queue.storage, after="0") as events:
        async for event in events:
            if isinstance(event, QueueEvent) and event.job_id == node.job.id:
                kinds.append(event.kind)
            if kinds[-1:] == ["completed"]:
                break
    assert [kind for kind in kinds if kind != "active"] == ["added", "waiting-children", "waiting", "completed"]


async def test_the_options_of_a_parent_apply_when_it_is_released(queue: AnyQueue, flows: FlowProducer) -> None:
    node = await flows.add(tree(queue, leaf(queue), options=JobOptions(delay=60, priority=3)))
    await run(queue)
    assert await state_of(node.job) == "delayed"
    await node.job.promote()
    assert await state_of(node.job) == "prioritized"
    await run(queue)
    assert await state_of(node.job) == "completed"


async def test_a_parent_with_a_key_waits_in_the_line_of_its_key(queue: AnyQueue, flows: FlowProducer) -> None:
    node = await flows.add(tree(queue, leaf(queue, options=JobOptions(key="k")), options=JobOptions(key="k")))
    await run(queue)
    assert await state_of(node.job) == "completed"


async def fail(queue: AnyQueue, child: AnyJob) -> None:
    await run(queue)


async def remove(queue: AnyQueue, child: AnyJob) -> None:
    await child.remove()


async def revoke(queue: AnyQueue, child: AnyJob) -> None:
    assert await child.revoke("not needed")


async def drain(queue: AnyQueue, child: AnyJob) -> None:
    assert await queue.drain() == 1


async def clean(queue: AnyQueue, child: AnyJob) -> None:
    assert await queue.clean(state="waiting") == [child.id]


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (fail, "UnrecoverableError: boom"),
        (remove, "removed"),
        (revoke, "revoked: not needed"),
        (drain, "removed"),
        (clean, "removed"),
    ],
)
async def test_a_parent_fails_with_its_child_and_names_the_path(
    queue: AnyQueue, flows: FlowProducer, end: Callable[[AnyQueue, AnyJob], Awaitable[None]], reason: str
) -> None:
    node = await flows.add(tree(queue, tree(queue, leaf(queue, "bad"), name="middle")))
    middle = node.children[0]
    child = middle.children[0].job
    await end(queue, child)
    await node.job.refresh()
    assert (node.job.state, node.job.failure_cause) == ("failed", "child_failed")
    assert node.job.failed_reason == f"child_failed: middle {middle.job.id} > bad {child.id}: {reason}"
    with pytest.raises(JobFailed, match=f"bad {child.id}"):
        await node.job.result()
    assert "waiting-children" not in await counts_after_work(queue)


async def test_an_expired_child_fails_its_parent(queue: AnyQueue, flows: FlowProducer) -> None:
    node = await flows.add(tree(queue, leaf(queue, options=JobOptions(ttl=0.001))))
    await asyncio.sleep(0.01)
    await run(queue)
    assert (await queue.get_job(node.job.id)).failed_reason.endswith(": expired")  # type: ignore[union-attr]


async def test_siblings_of_a_failed_child_do_not_start(queue: AnyQueue, flows: FlowProducer) -> None:
    gate = Gate()
    node = await flows.add(tree(queue, leaf(queue, "first"), leaf(queue, "second"), tree(queue, leaf(queue, "third"))))
    async with worker_of(queue, gate, concurrency=1):
        running = await gate.running()
        assert running.name == "first"
        await node.children[1].job.remove()
        assert await state_of(node.job) == "failed"
        stopped = await gate.stopped()
        assert stopped.id == running.id
    await running.refresh()
    assert running.failed_reason == "revoked: no parent needs it"
    assert await counts_after_work(queue) == {"failed": 2}


async def test_wait_fails_the_parent_after_its_other_children(queue: AnyQueue, flows: FlowProducer) -> None:
    node = await flows.add(tree(queue, leaf(queue, "bad", on_failure="wait"), leaf(queue, "good", 5)))
    ran: list[str] = []

    async def note(job: AnyJob) -> Any:
        ran.append(job.name)
        assert await state_of(node.job) == "waiting-children"
        return await gather(job)

    await run(queue, note)
    assert ran == ["bad", "good"]
    await node.job.refresh()
    assert node.job.failed_reason == f"child_failed: bad {node.children[0].job.id}: UnrecoverableError: boom"
    assert (await node.job.get_dependencies()).completed == (JobRef(queue.name, node.children[1].job.id),)


async def test_collect_passes_the_failure_to_the_parent(queue: AnyQueue, flows: FlowProducer) -> None:
    node = await flows.add(tree(queue, leaf(queue, "bad", on_failure="collect"), leaf(queue, "good", 5)))
    seen: list[Any] = []

    async def note(job: AnyJob) -> Any:
        if job.name == "root":
            seen.extend((await job.get_children_values()).values())
            return None
        return await gather(job)

    await run(queue, note)
    assert await state_of(node.job) == "completed"
    failure, value = seen
    assert isinstance(failure, JobFailed)
    assert (failure.error_type, failure.message, value) == ("UnrecoverableError", "boom", 5)
    bad = JobRef(queue.name, node.children[0].job.id)
    assert (await node.job.get_dependencies()).failed == {bad: "UnrecoverableError: boom"}


@pytest.mark.parametrize("policy", ["ignore", "remove"])
async def test_ignore_and_remove_start_the_parent_without_the_child(
    queue: AnyQueue, flows: FlowProducer, policy: Any
) -> None:
    node = await flows.add(tree(queue, leaf(queue, "bad", on_failure=policy), leaf(queue, "good", 5)))
    await run(queue)
    assert await node.job.result() == [5]
    dependencies = await node.job.get_dependencies()
    bad = JobRef(queue.name, node.children[0].job.id)
    assert dependencies.ignored == ({bad: "UnrecoverableError: boom"} if policy == "ignore" else {})
    assert not dependencies.failed


async def test_a_child_that_is_retried_keeps_its_parent_waiting(queue: AnyQueue, flows: FlowProducer) -> None:
    node = await flows.add(tree(queue, leaf(queue, data=7, options=JobOptions(attempts=2))))
    runs = 0

    async def second_time(job: AnyJob) -> Any:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ValueError("once")
        return await gather(job)

    await run(queue, second_time)
    assert (await node.job.result(), runs) == ([7], 3)


async def test_removing_the_root_removes_the_rest_of_the_tree(queue: AnyQueue, flows: FlowProducer) -> None:
    node = await flows.add(tree(queue, leaf(queue), tree(queue, leaf(queue), leaf(queue))))
    await node.job.remove()
    assert await counts_after_work(queue) == {}
    with pytest.raises(JobNotFound):
        await node.children[1].children[0].job.refresh()


async def test_revoking_a_parent_fails_it_and_removes_its_children(queue: AnyQueue, flows: FlowProducer) -> None:
    node = await flows.add(tree(queue, tree(queue, leaf(queue), name="middle"), leaf(queue, "other")))
    assert await node.children[0].job.revoke()
    assert await counts_after_work(queue) == {"failed": 2}
    await node.job.refresh()
    assert node.job.failed_reason == f"child_failed: middle {node.children[0].job.id}: revoked"


async def test_cleaning_waiting_parents_removes_their_trees(queue: AnyQueue, flows: FlowProducer) -> None:
    node = await flows.add(tree(queue, leaf(queue)))
    assert await queue.clean(state="waiting-children") == [node.job.id]
    assert await counts_after_work(queue) == {}


async def test_results_that_are_not_kept_reach_the_parent(queue: AnyQueue, flows: FlowProducer) -> None:
    kept_not = JobOptions(keep_completed=False, keep_failed=False)
    node = await flows.add(
        tree(queue, leaf(queue, data=1, options=kept_not), leaf(queue, "bad", options=kept_not, on_failure="collect"))
    )
    await run(queue)
    assert await node.job.result() == [1, "boom"]
    assert await queue.get_job(node.children[0].job.id) is None


async def test_obliterating_the_queue_leaves_nothing(queue: AnyQueue, flows: FlowProducer) -> None:
    await flows.add(tree(queue, leaf(queue), tree(queue, leaf(queue))))
    assert await queue.obliterate() > 0
    await queue.connect()
    assert await queue.check() == []
    assert await counts_after_work(queue) == {}


async def test_a_root_with_a_known_id_is_added_once(queue: AnyQueue, flows: FlowProducer) -> None:
    flow = tree(queue, leaf(queue, data=1), options=JobOptions(job_id="once"))
    first = await flows.add(flow)
    again = await flows.add(flow)
    assert (again.job.id, again.job.outcome, again.children) == ("once", "duplicate", [])
    assert await counts_after_work(queue) == {"waiting": 1, "waiting-children": 1}
    await run(queue)
    assert (await flows.add(flow)).job.outcome == "completed"
    await first.job.remove()
    await first.children[0].job.remove()
    assert (await flows.add(flow)).job.outcome == "added"
    await run(queue)
    assert await first.job.result() == [1]


async def test_an_id_of_a_child_that_is_in_use_refuses_the_flow(queue: AnyQueue, flows: FlowProducer) -> None:
    await queue.add("n", 1, job_id="mine")
    with pytest.raises(ValueError, match="has a job with id 'mine'"):
        await flows.add(tree(queue, leaf(queue, options=JobOptions(job_id="mine"))))
    assert await counts_after_work(queue) == {"waiting": 1}


async def test_a_derived_id_that_is_in_use_counts_as_a_failed_child(queue: AnyQueue, flows: FlowProducer) -> None:
    await queue.add("n", 1, job_id="f/1")
    node = await flows.add(tree(queue, leaf(queue), options=JobOptions(job_id="f")))
    await node.job.refresh()
    assert node.job.failed_reason == "child_failed: leaf f/1: duplicate: a job with this id exists"


async def test_a_large_flow_is_made_in_steps(queue: AnyQueue, flows: FlowProducer) -> None:
    children = [leaf(queue, data=number) for number in range(500)]
    node = await flows.add(tree(queue, *children))
    assert await counts_after_work(queue) == {"waiting": 500, "waiting-children": 1}
    await run(queue)
    assert await node.job.result() == list(range(500))


async def test_a_large_tree_is_cancelled_whole(queue: AnyQueue, flows: FlowProducer) -> None:
    branches = [tree(queue, *[leaf(queue) for _ in range(20)]) for _ in range(20)]
    node = await flows.add(tree(queue, *branches))
    await node.job.revoke()
    started = 0

    async def count(job: AnyJob) -> None:
        nonlocal started
        started += 1

    await run(queue, count)
    assert (await counts_after_work(queue), started) == ({"failed": 1}, 0)


async def test_a_deep_chain_runs_from_its_end(queue: AnyQueue, flows: FlowProducer) -> None:
    flow = leaf(queue, data="x")
    for _ in range(60):
        flow = tree(queue, flow)
    node = await flows.add(flow)
    await run(queue)
    value = await node.job.result()
    for _ in range(60):
        [value] = value
    assert value == "x"


async def test_a_deep_chain_fails_to_its_root(queue: AnyQueue, flows: FlowProducer) -> None:
    flow = leaf(queue, "bad")
    for _ in range(60):
        flow = tree(queue, flow)
    node = await flows.add(flow)
    await run(queue)
    await node.job.refresh()
    assert node.job.state == "failed"
    assert node.job.failed_reason is not None
    assert node.job.failed_reason.endswith("UnrecoverableError: boom")
    assert await counts_after_work(queue) == {"failed": 61}


async def test_flows_that_are_added_together_are_separate(queue: AnyQueue, flows: FlowProducer) -> None:
    nodes: list[JobNode] = await flows.add_bulk([tree(queue, leaf(queue, data=n)) for n in range(3)])
    await run(queue)
    assert [await node.job.result() for node in nodes] == [[0], [1], [2]]


async def test_the_priority_of_a_waiting_parent_can_change_and_its_delay_cannot(
    queue: AnyQueue, flows: FlowProducer
) -> None:
    node = await flows.add(tree(queue, leaf(queue)))
    await node.job.change_priority(4)
    assert await state_of(node.job) == "waiting-children"
    with pytest.raises(JobStateError):
        await node.job.change_delay(5)
    with pytest.raises(JobStateError):
        await node.job.promote()
    await node.children[0].job.remove()
    assert await state_of(node.job) == "failed"


async def test_a_job_can_have_many_parents(queue: AnyQueue, flows: FlowProducer) -> None:
    """The end of a job resolves its first parents in the same call, and the rest is work of flows."""
    parents = [DagNode(f"parent{number}", queue.name, deps=["shared", "bad"]) for number in range(50)]
    shared = [DagNode("shared", queue.name, 7), DagNode("bad", queue.name, job_name="bad", on_failure="ignore")]
    jobs = await flows.add_dag([*shared, *parents])
    await run(queue)
    assert await counts_after_work(queue) == {"completed": 51, "failed": 1}
    assert [await jobs[parent.name].result() for parent in parents] == [[7]] * 50


async def test_a_plan_whose_pages_were_forgotten_is_sent_again(
    storage: Storage, name: str, store: RunningStore
) -> None:
    relay, forgotten = Relay(storage), list[str]()

    async def forget(function: str, *_: object) -> None:
        if function == "stageFlow" and len(relay.calls) == relay.calls.index("stageFlow") + 1:
            forgotten.extend(key for key in await store.keys() if ":flow:" in key and name in key)
            await store.ask("UNLINK", *forgotten)

    relay.after_call = forget
    async with Queue[Any, Any](name, storage) as queue, FlowProducer(relay) as producer:
        node = await producer.add(tree(queue, *[leaf(queue, data=[number, "x" * 2_000]) for number in range(400)]))
        assert len(forgotten) == 1
        assert relay.calls.count("addFlow") == 2
        assert await counts_after_work(queue) == {"waiting": 400, "waiting-children": 1}
        assert node.job.state == "waiting-children"
        assert await queue.check() == []


async def test_a_failed_parent_can_be_retried(queue: AnyQueue, flows: FlowProducer) -> None:
    node = await flows.add(tree(queue, leaf(queue, "bad", on_failure="wait"), leaf(queue, data=1)))
    await run(queue)
    await node.job.retry()
    await run(queue)
    assert await node.job.result() == [1]


async def test_a_flow_is_checked_before_it_is_sent(queue: AnyQueue, flows: FlowProducer, monkeypatch: Any) -> None:
    with pytest.raises(ValueError, match="on_failure"):
        leaf(queue, on_failure="panic")
    same = JobOptions(job_id="a")
    with pytest.raises(ValueError, match="job_id 'a'"):
        await flows.add(tree(queue, leaf(queue, options=same), leaf(queue, options=same)))
    with pytest.raises(TypeError, match="FlowJob"):
        await flows.add("root")  # type: ignore[arg-type]
    with monkeypatch.context() as smaller:
        smaller.setattr(plan, "MOST_CHILDREN", 1)
        with pytest.raises(ValueError, match="at most 1 children, and 'root' has 2"):
            await flows.add(tree(queue, leaf(queue), leaf(queue)))
        smaller.setattr(plan, "MOST_PARENTS", 0)
        with pytest.raises(ValueError, match="at most 0 parents, and 'leaf' has 1"):
            await flows.add(tree(queue, leaf(queue)))
    monkeypatch.setattr(plan, "MOST_NODES", 2)
    with pytest.raises(ValueError, match="at most 2 jobs"):
        await flows.add(tree(queue, leaf(queue), leaf(queue)))
    assert await counts_after_work(queue) == {}


async def test_nothing_of_a_large_tree_starts_after_its_root_was_removed(queue: AnyQueue, flows: FlowProducer) -> None:
    gate = Gate()
    middle = [tree(queue, *(leaf(queue) for _ in range(1_000)), name="middle") for _ in range(10)]
    node = await flows.add(tree(queue, *middle))
    async with worker_of(queue, gate, concurrency=20):
        # Every slot is in use, so no claim is on its way when the root is removed.
        before = {(await gate.running()).id for _ in range(20)}
        await node.job.remove()
        stopped = {(await gate.stopped()).id for _ in range(20)}
        assert stopped == before
        # The worker has free slots now, and the only job that it starts is one that was added later.
        last = await queue.add("last")
        assert (await gate.running()).id == last.id
        gate.release()
        await last.result(timeout=10)
    assert await counts(queue) == {"completed": 1, "failed": 20}
    assert await queue.check() == []
