"""Children that the handler of a running job adds."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from glidemq_async import (
    FlowJob,
    FlowProducer,
    JobFailed,
    JobNotFound,
    JobOptions,
    JobRef,
    JobStateError,
    LeaseLost,
    Queue,
    UnrecoverableError,
)
from glidemq_async.errors import WaitingForChildren
from glidemq_async.flows import added_children
from glidemq_async.flows.nodes import FailurePolicy
from glidemq_async.functions.children import Pages, RefusedChildren
from glidemq_async.jobs.job import run_of
from glidemq_async.storage import Storage
from tests.support.helpers import AnyJob, AnyQueue, counts, soon, worker_of

pytestmark = pytest.mark.everywhere


@pytest.fixture
async def flows(queue: AnyQueue) -> AsyncIterator[FlowProducer]:
    async with FlowProducer(queue.storage) as producer:
        yield producer
    assert await queue.check() == []


def leaf(queue: AnyQueue, data: object = None, policy: FailurePolicy = "fail", **options: object) -> FlowJob:
    return FlowJob("leaf", queue.name, data, JobOptions(**options), on_failure=policy)  # type: ignore[arg-type]


async def answer(job: AnyJob) -> object:
    """A handler of children: return the data, or fail."""
    if job.data == "bad":
        raise UnrecoverableError("boom")
    return job.data


class Parent:
    """A handler whose parents add these children in their first run, and return the values in the next one."""

    def __init__(self, flows: FlowProducer, *children: FlowJob) -> None:
        self.flows = flows
        self.children = children
        self.runs = 0

    async def __call__(self, job: AnyJob) -> object:
        if job.name != "parent":
            return await answer(job)
        self.runs += 1
        if self.runs == 1:
            await self.flows.add_children(job, self.children)
            await job.move_to_waiting_children()
        values = (await job.get_children_values()).values()
        return [value.message if isinstance(value, JobFailed) else value for value in values]


async def test_a_job_runs_again_when_the_children_that_it_added_have_ended(
    queue: AnyQueue, flows: FlowProducer
) -> None:
    parent = await queue.add("parent")
    handler = Parent(flows, leaf(queue, 1), leaf(queue, 2), leaf(queue, 3))
    await soon(worker_of(queue, handler).run(until_empty=True))
    assert await parent.result() == [1, 2, 3]
    await parent.refresh()
    assert (handler.runs, parent.attempts_made) == (2, 1)
    assert await counts(queue) == {"completed": 4}
    assert list((await parent.get_children_values()).values()) == [1, 2, 3]


async def test_a_job_that_waits_gives_back_its_slot(queue: AnyQueue, flows: FlowProducer) -> None:
    parent = await queue.add("parent")
    handler = Parent(flows, leaf(queue, 1))
    await soon(worker_of(queue, handler, concurrency=1).run(until_empty=True))
    assert await parent.result() == [1]


async def test_a_job_that_waits_is_seen_with_its_children(queue: AnyQueue, flows: FlowProducer) -> None:
    other: AnyQueue = Queue(f"{queue.name}-other", queue.storage)
    async with other:
        parent = await queue.add("parent")
        handler = Parent(flows, leaf(other, 1))
        await soon(worker_of(queue, handler).run(until_empty=True))
        assert await parent.get_state() == "waiting-children"
        assert await queue.check() == []
        [child] = await other.get_jobs("waiting")
        assert child.parent == JobRef(queue.name, parent.id)
        await parent.refresh()
        assert (await parent.get_dependencies()).pending == (JobRef(other.name, child.id),)
        await soon(worker_of(other, answer).run(until_empty=True))
        await soon(worker_of(queue, handler).run(until_empty=True))
        assert await parent.result() == [1]
        assert await other.check() == []


async def test_a_job_runs_again_immediately_if_its_children_have_ended(queue: AnyQueue, flows: FlowProducer) -> None:
    async def add_and_wait(job: AnyJob) -> object:
        if job.name != "parent":
            return await answer(job)
        if values := await job.get_children_values():
            return list(values.values())
        [node] = await flows.add_children(job, [leaf(queue, 5)])
        await node.job.result(timeout=10)
        return await job.move_to_waiting_children()

    parent = await queue.add("parent")
    await soon(worker_of(queue, add_and_wait, concurrency=2).run(until_empty=True))
    assert await parent.result() == [5]


async def test_a_job_without_children_runs_again_immediately(queue: AnyQueue) -> None:
    runs: list[int] = []

    async def wait_once(job: AnyJob) -> None:
        runs.append(job.attempts_made)
        if len(runs) == 1:
            await job.move_to_waiting_children()

    job = await queue.add("parent")
    await soon(worker_of(queue, wait_once).run(until_empty=True))
    await job.result()
    assert runs == [0, 0]
    assert await queue.check() == []


@pytest.mark.parametrize("policy", ["collect", "ignore", "remove"])
async def test_the_policies_apply_to_added_children(
    queue: AnyQueue, flows: FlowProducer, policy: FailurePolicy
) -> None:
    parent = await queue.add("parent")
    handler = Parent(flows, leaf(queue, "bad", policy), leaf(queue, "x"))
    await soon(worker_of(queue, handler).run(until_empty=True))
    assert await parent.result() == (["boom", "x"] if policy == "collect" else ["x"])


@pytest.mark.parametrize("policy", ["fail", "wait"])
async def test_a_job_fails_when_an_added_child_fails(
    queue: AnyQueue, flows: FlowProducer, policy: FailurePolicy
) -> None:
    parent = await queue.add("parent", options=JobOptions(attempts=3))
    handler = Parent(flows, leaf(queue, "bad", policy), leaf(queue, 1))
    await soon(worker_of(queue, handler).run(until_empty=True))
    with pytest.raises(JobFailed, match=r"child_failed: leaf .* boom"):
        await parent.result()
    await parent.refresh()
    assert (handler.runs, parent.failure_cause) == (1, "child_failed")


async def test_a_child_that_fails_before_its_parent_waits_fails_it_then(queue: AnyQueue, flows: FlowProducer) -> None:
    seen: list[str] = []

    async def add_and_wait(job: AnyJob) -> object:
        if job.name != "parent":
            return await answer(job)
        bad, _ = await flows.add_children(job, [leaf(queue, "bad"), leaf(queue, 1, delay=3600)])
        with pytest.raises(JobFailed):
            await bad.job.result(timeout=10)
        seen.append(await job.get_state())
        return await job.move_to_waiting_children()

    parent = await queue.add("parent")
    await soon(worker_of(queue, add_and_wait, concurrency=2).run(until_empty=True))
    with pytest.raises(JobFailed, match="boom"):
        await parent.result()
    assert seen == ["active"]
    assert await counts(queue) == {"failed": 2}


async def test_a_job_that_ends_without_waiting_cancels_the_children_that_it_added(
    queue: AnyQueue, flows: FlowProducer
) -> None:
    async def add_only(job: AnyJob) -> str:
        await flows.add_children(job, [leaf(queue, n, delay=3600) for n in range(3)])
        return "done"

    parent = await queue.add("parent")
    await soon(worker_of(queue, add_only).run(until_empty=True))
    assert await parent.result() == "done"
    assert await counts(queue) == {"completed": 1}


async def test_removing_a_job_that_waits_cancels_the_children_that_it_added(
    queue: AnyQueue, flows: FlowProducer
) -> None:
    parent = await queue.add("parent")
    handler = Parent(flows, *(leaf(queue, n, delay=3600) for n in range(3)))
    await soon(worker_of(queue, handler).run(until_empty=True))
    assert await counts(queue) == {"delayed": 3, "waiting-children": 1}
    await parent.remove()
    assert await counts(queue) == {}


async def test_a_job_of_a_flow_adds_children(queue: AnyQueue, flows: FlowProducer) -> None:
    handler = Parent(flows, leaf(queue, 2), leaf(queue, 3))
    node = await flows.add(
        FlowJob("top", queue.name, "top", children=[FlowJob("parent", queue.name, children=[leaf(queue, 1)])])
    )
    await soon(worker_of(queue, handler).run(until_empty=True))
    assert await node.children[0].job.result() == [1, 2, 3]
    assert await node.job.result() == "top"


async def test_a_job_of_a_flow_that_is_cancelled_cancels_the_children_that_it_added(
    queue: AnyQueue, flows: FlowProducer
) -> None:
    node = await flows.add(FlowJob("top", queue.name, children=[FlowJob("parent", queue.name)]))
    handler = Parent(flows, leaf(queue, 1, delay=3600))
    await soon(worker_of(queue, handler).run(until_empty=True))
    assert await counts(queue) == {"delayed": 1, "waiting-children": 2}
    await node.job.remove()
    assert await counts(queue) == {}


async def test_children_are_added_in_several_rounds(queue: AnyQueue, flows: FlowProducer) -> None:
    async def three_rounds(job: AnyJob) -> object:
        if job.name != "parent":
            return await answer(job)
        values = list((await job.get_children_values()).values())
        if len(values) < 6:
            await asyncio.gather(
                *(flows.add_children(job, [leaf(queue, len(values))]) for _ in range(2)),
            )
            await job.move_to_waiting_children()
        return values

    parent = await queue.add("parent")
    await soon(worker_of(queue, three_rounds).run(until_empty=True))
    assert await parent.result() == [0, 0, 2, 2, 4, 4]


async def test_a_child_with_the_id_of_an_earlier_one_is_not_added_again(queue: AnyQueue, flows: FlowProducer) -> None:
    outcomes: list[list[str]] = []

    async def repeat(job: AnyJob) -> object:
        if job.name != "parent":
            return await answer(job)
        nodes = await flows.add_children(job, [leaf(queue, 1, job_id="a"), leaf(queue, 2, job_id="b")])
        outcomes.append([node.job.outcome for node in nodes])
        if len(outcomes) == 1:
            await job.move_to_waiting_children()
        return list((await job.get_children_values()).values())

    parent = await queue.add("parent")
    await soon(worker_of(queue, repeat).run(until_empty=True))
    assert await parent.result() == [1, 2]
    assert outcomes == [["added", "added"], ["duplicate", "duplicate"]]


async def test_trees_are_added_as_children(queue: AnyQueue, flows: FlowProducer) -> None:
    async def add_trees(job: AnyJob) -> object:
        if job.name == "leaf":
            return job.data
        values = list((await job.get_children_values()).values())
        if job.name == "parent" and not values:
            trees = [FlowJob("sum", queue.name, children=[leaf(queue, n), leaf(queue, n + 1)]) for n in (1, 3)]
            nodes = await flows.add_children(job, trees)
            assert [len(node.children) for node in nodes] == [2, 2]
            await job.move_to_waiting_children()
        return sum(values)

    parent = await queue.add("parent")
    await soon(worker_of(queue, add_trees).run(until_empty=True))
    assert await parent.result() == 10


async def test_many_children_are_added_in_several_calls(
    queue: AnyQueue, flows: FlowProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(added_children, "MOST_JOBS_OF_A_CALL", 7)
    parent = await queue.add("parent")
    handler = Parent(flows, *(leaf(queue, n) for n in range(50)))
    await soon(worker_of(queue, handler).run(until_empty=True))
    assert await parent.result() == list(range(50))


async def test_a_worker_that_lost_its_claim_cannot_add_children(queue: AnyQueue, flows: FlowProducer) -> None:
    running, tried = asyncio.Event(), asyncio.Event()
    errors: list[BaseException] = []
    replies: list[object] = []

    async def lose(job: AnyJob) -> None:
        client, entry = run_of(job)
        page = Pages([b"\x92\x01\x90"], 1)
        replies.append(await client.functions.children.add(job.id, f"{entry}9", "s", 1, [(1, "")], page))
        running.set()
        # The worker cancels the run of a job that was removed. This handler goes on.
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        try:
            await flows.add_children(job, [leaf(queue)])
        except (LeaseLost, JobNotFound) as error:
            errors.append(error)
        finally:
            tried.set()

    job = await queue.add("parent")
    worker = worker_of(queue, lose)
    async with worker:
        task = asyncio.create_task(worker.run())
        await running.wait()
        await job.remove()
        await soon(tried.wait())
        await worker.close()
        await task
    assert await counts(queue) == {}
    assert replies == [RefusedChildren("stale", ())]
    assert len(errors) == 1


async def test_only_the_handler_adds_children_and_waits(queue: AnyQueue, flows: FlowProducer) -> None:
    job = await queue.add("parent")
    with pytest.raises(JobStateError):
        await flows.add_children(job, [leaf(queue)])
    with pytest.raises(JobStateError):
        await job.move_to_waiting_children()


async def test_children_that_do_not_fit_are_refused(queue: AnyQueue, storage: Storage) -> None:
    errors: list[BaseException] = []

    async def try_all(job: AnyJob) -> None:
        async with FlowProducer(queue.storage) as flows:
            for children in (
                [leaf(queue, job_id="a"), leaf(queue, job_id="a")],
                [FlowJob("top", queue.name, children=[leaf(queue)] * 1_000)],
            ):
                with pytest.raises(ValueError, match=r"two children|at most") as caught:
                    await flows.add_children(job, children)
                errors.append(caught.value)
        async with FlowProducer(queue.storage, prefix="elsewhere") as flows:
            with pytest.raises(ValueError, match="prefix") as caught:
                await flows.add_children(job, [leaf(queue)])
            errors.append(caught.value)

    await queue.add("parent")
    await soon(worker_of(queue, try_all).run(until_empty=True))
    assert len(errors) == 3


def test_the_end_of_a_run_that_waits_can_be_pickled() -> None:
    assert isinstance(pickle.loads(pickle.dumps(WaitingForChildren())), WaitingForChildren)
