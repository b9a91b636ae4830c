"""Cases of the functions for flows."""

from __future__ import annotations

from collections.abc import Sequence

from glidemq_async.flows.added_children import MOST_JOBS_OF_A_CALL
from glidemq_async.flows.nodes import DagNode, FlowJob
from glidemq_async.flows.plan import (
    MOST_BYTES,
    MOST_CHILDREN,
    MOST_NODES,
    MOST_PARENTS,
    PAGE_BYTES,
    PlannedNode,
    pages_of,
    plan_dag,
    plan_tree,
)
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.children import AddedChildren, Pages
from glidemq_async.functions.flows import FlowReply
from glidemq_async.functions.inbox import Delivery
from glidemq_async.functions.lease import Held
from tests.server_time.bench import MIB, NIL, Bench, largest

STAMP = "stamp"


def star(children: int, queue: str = "home") -> list[PlannedNode]:
    """Return the plan of a parent with this many children, which are in `queue`."""
    return plan_tree(FlowJob("parent", "home", None, children=[FlowJob("n", queue) for _ in range(children)]))


def children_of(b: Bench) -> int:
    """Return the number of children of a large parent."""
    return min(4 * b.many, 10_000)


async def store(b: Bench, plan: Sequence[PlannedNode], data: bytes = NIL, other: str = "") -> FlowReply:
    """Store a flow. Nodes outside of its home are sent to the queue with the base key `other`."""
    requests = [AddRequest("", planned.node.name, data, b"", b"") for planned in plan]
    bases = ["" if planned.node.queue_name == "home" else other for planned in plan]
    return await b.functions.flows.add("", STAMP, len(plan), [], pages_of(plan, requests, bases), "default")


async def advance(b: Bench) -> None:
    """Do all work of flows."""
    while await b.functions.flows.advance():
        pass


def wide(nodes: int, queue: str = "home") -> list[PlannedNode]:
    """Return the plan of a tree with this many nodes and as few parents as possible. The leaves are in `queue`."""
    groups, rest = divmod(nodes - 1, MOST_CHILDREN + 1)
    sizes = [MOST_CHILDREN] * groups + [rest - 1] * (rest > 0)
    parents = [FlowJob("middle", "home", children=[FlowJob("n", queue)] * size) for size in sizes]
    return plan_tree(FlowJob("parent", "home", children=parents))


@largest("addFlow", "many nodes")
async def add_many_nodes(b: Bench) -> None:
    await b.crowd()
    await store(b, wide(min(100 * b.many, MOST_NODES)))


@largest("stageFlow", "many nodes")
async def stage_many_nodes(b: Bench) -> None:
    await store(b, wide(min(100 * b.many, MOST_NODES)))


@largest("advanceFlows", "many nodes")
async def advance_many_nodes(b: Bench) -> None:
    await store(b, wide(min(20 * b.many, MOST_NODES)))
    await advance(b)


@largest("stageFlow", "much data")
async def stage_much_data(b: Bench) -> None:
    children = MOST_BYTES // MIB - 1
    await store(b, star(children), b"x" * (MIB - PAGE_BYTES // 100))


@largest("addFlow", "much data")
async def add_much_data(b: Bench) -> None:
    await store(b, star(1), b"x" * MIB)


@largest("addFlow", "many parents")
async def add_many_parents(b: Bench) -> None:
    await store(b, crossed())


@largest("settleAndClaim", "many parents")
async def settle_many_parents(b: Bench) -> None:
    await store(b, crossed())
    await advance(b)
    await b.end(100)


def crossed() -> list[PlannedNode]:
    """Return the plan of a graph in which each of 100 jobs has as many parents as possible."""
    deps = [f"child{number}" for number in range(100)]
    parents = [DagNode(f"parent{number}", "home", deps=deps) for number in range(MOST_PARENTS)]
    return plan_dag([*(DagNode(name, "home") for name in deps), *parents])


@largest("addFlow", "to another queue")
async def add_to_another_queue(b: Bench) -> None:
    await store(b, wide(min(10 * b.many, MOST_NODES), "other"), b"x" * 300, f"{b.base}-other")


@largest("advanceFlows", "many children")
async def advance_many(b: Bench) -> None:
    await store(b, star(children_of(b)), b"x" * 300)
    await advance(b)
    await b.end(children_of(b))
    await advance(b)


@largest("advanceFlows", "a failed child of many")
async def cancel_many(b: Bench) -> None:
    await store(b, star(children_of(b)))
    await advance(b)
    await b.end(1, "f")
    await advance(b)


@largest("advanceFlows", "to another queue")
async def advance_to_another_queue(b: Bench) -> None:
    await store(b, star(children_of(b), "other"), b"x" * 5_000, f"{b.base}-other")
    await advance(b)


@largest("settleAndClaim", "children of one parent")
async def settle_children(b: Bench) -> None:
    await store(b, star(children_of(b)))
    await advance(b)
    await b.end(children_of(b))


@largest("settleAndClaim", "a failed child of many")
async def fail_child(b: Bench) -> None:
    await store(b, star(children_of(b)))
    await advance(b)
    await b.end(1, "f")


@largest("revokeJob", "the root of a tree")
async def revoke_root(b: Bench) -> None:
    for plan in (star(children_of(b)), wide(min(8 * b.many, MOST_NODES)), star(children_of(b), "other")):
        added = await store(b, plan, other=f"{b.base}-other")
        await advance(b)
        assert (await b.functions.jobs.revoke(added.id)).code == "revoked"
        await advance(b)


@largest("removeJob", "the root of a tree")
async def remove_root(b: Bench) -> None:
    added = await store(b, star(children_of(b)))
    await advance(b)
    assert (await b.functions.jobs.remove(added.id)).code == "ok"


@largest("advanceFlows", "a root of many is revoked")
async def cancel_tree(b: Bench) -> None:
    for plan in (star(children_of(b)), wide(min(8 * b.many, MOST_NODES)), star(children_of(b), "other")):
        added = await store(b, plan, other=f"{b.base}-other")
        await advance(b)
        await b.functions.jobs.revoke(added.id)
        await advance(b)


@largest("advanceFlows", "running children of a root that is revoked")
async def cancel_running(b: Bench) -> None:
    added = await store(b, star(min(2 * b.many, MOST_CHILDREN)))
    await advance(b)
    await b.claim(min(b.many, MOST_CHILDREN // 2))
    await b.functions.jobs.revoke(added.id)
    await advance(b)


@largest("advanceFlows", "parents with the same children are revoked")
async def cancel_parents(b: Bench) -> None:
    added = await store(b, crossed())
    await advance(b)
    for number in range(MOST_PARENTS):
        await b.functions.jobs.revoke(added.id if number == 0 else f"{added.id}/{number}")
    await advance(b)


@largest("deliverJobs", "cancelled jobs")
async def deliver_cancelled(b: Bench) -> None:
    home = b.other("home")
    plan = star(min(b.many, MOST_CHILDREN), "other")
    requests = [AddRequest("", planned.node.name, NIL, b"", b"") for planned in plan]
    bases = ["" if planned.node.queue_name == "home" else b.base for planned in plan]
    added = await home.flows.add("", STAMP, len(plan), [], pages_of(plan, requests, bases), "default")
    await relay_all(home, b)
    await b.claim(b.many // 2)
    await home.jobs.revoke(added.id)
    await relay_all(home, b)


async def relay_all(source: Functions, b: Bench) -> None:
    """Do the work of a queue, and deliver its outbox to the queue of the bench."""
    while await source.flows.advance():
        pass
    after, done = "", list[str]()
    while True:
        after, posted, *_ = await source.outbox.relay("", after, done)
        if not posted:
            return
        await b.functions.inbox.deliver([Delivery(f"{source.caller.base}/{one.entry}", *one[2:]) for one in posted])
        done = [one.entry for one in posted]


@largest("revokeJob", "a run with 10,000 children")
async def revoke_run(b: Bench) -> None:
    await b.functions.add.jobs([AddRequest("", "parent", NIL, b"", b"")])
    [run] = await b.claim(1)
    await add_children_of(b, run, MOST_CHILDREN // MOST_JOBS_OF_A_CALL, MOST_JOBS_OF_A_CALL)
    assert (await b.functions.jobs.revoke(run.id)).code == "revoking"


async def read_children(b: Bench, children: int, result: bytes) -> None:
    added = await store(b, star(children))
    await advance(b)
    await b.end(children, "c", result)
    assert len(await b.functions.children.read(added.id, STAMP, 0) or ()) == children


@largest("getChildren", "many")
async def read_many_children(b: Bench) -> None:
    await read_children(b, 10_000, NIL)


@largest("getChildren", "large results")
async def read_large_children(b: Bench) -> None:
    await read_children(b, 40, b"x" * MIB)


async def read_flow(b: Bench, plan: Sequence[PlannedNode], data: bytes, made: bool) -> None:
    await b.crowd()
    added = await store(b, plan, data)
    if made:
        await advance(b)
    assert len(await b.functions.graphs.read_flow(added.id, "", MOST_NODES) or ()) == len(plan)


@largest("readFlow", "made nodes")
async def read_made_nodes(b: Bench) -> None:
    await read_flow(b, wide(min(b.many, MOST_NODES)), NIL, made=True)


@largest("readFlow", "planned nodes")
async def read_planned_nodes(b: Bench) -> None:
    await read_flow(b, wide(min(10 * b.many, MOST_NODES)), NIL, made=False)


@largest("readFlow", "much data")
async def read_planned_data(b: Bench) -> None:
    await read_flow(b, star(40), b"x" * (MIB // 2), made=False)


@largest("readFlowJobs", "many")
async def read_jobs_of_a_flow(b: Bench) -> None:
    await b.crowd()
    ids = [str(number) for number in range(1, b.many + 1)]
    assert len(await b.functions.graphs.read_jobs(ids)) == b.many


async def add_to_a_run(b: Bench, calls: int, children: int, queue: str = "home", data: bytes = NIL) -> None:
    """Let a run add children to its job in several calls, and then let the job wait for them."""
    await b.functions.add.jobs([AddRequest("", "parent", NIL, b"", b"")])
    [run] = await b.claim(1)
    await add_children_of(b, run, calls, children, queue, data)
    await b.settle([run], "w", "")


async def add_children_of(
    b: Bench, run: Held, calls: int, children: int, queue: str = "home", data: bytes = NIL
) -> None:
    """Add children to the job of a run, in several calls."""
    first = 1
    for _ in range(calls):
        nodes = [FlowJob("n", queue) for _ in range(children)]
        plan = [PlannedNode(node, [0]) for node in nodes]
        bases = ["" if queue == "home" else f"{b.base}-{queue}"] * children
        pages = pages_of(plan, [AddRequest("", "n", data, b"", b"")] * children, bases, first)
        numbers = [(number, f"{b.base}{number}") for number in range(first, first + children)]
        reply = await b.functions.children.add(run.id, run.entry, STAMP, first, numbers, Pages(pages, children))
        assert isinstance(reply, AddedChildren)
        first += children


@largest("addChildren", "many children")
async def add_children(b: Bench) -> None:
    await b.crowd()
    await add_to_a_run(b, MOST_CHILDREN // MOST_JOBS_OF_A_CALL, MOST_JOBS_OF_A_CALL)


@largest("addChildren", "much data")
async def add_children_with_much_data(b: Bench) -> None:
    await add_to_a_run(b, 2, 1, data=b"x" * MIB)


@largest("addChildren", "to another queue")
async def add_children_to_another_queue(b: Bench) -> None:
    await add_to_a_run(b, 10, MOST_JOBS_OF_A_CALL, "other", b"x" * 300)
