"""Flows as plans: nodes with numbers, parents before their children, in the form that functions/plans.lua describes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError as GraphCycle
from graphlib import TopologicalSorter
from typing import Final, TypeAlias

import msgpack

from glidemq_async.errors import CycleError, PayloadTooLarge
from glidemq_async.flows.nodes import DagNode, FlowJob
from glidemq_async.functions.add import AddRequest
from glidemq_async.stored.flow import JobRef

MOST_NODES: Final = 100_000
"""Maximum number of jobs in one flow."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a flow in bytes."""
MOST_OWN_IDS: Final = 1_000
"""Maximum number of nodes with a `job_id` in the queue of the root."""
MOST_ROOT_ID_BYTES: Final = 200
"""Maximum size of the `job_id` of a root. The ids of the other jobs are derived from it."""
MOST_CHILDREN: Final = 10_000
"""Maximum number of children of one job. The server reads their list in one step."""
MOST_PARENTS: Final = 256
"""Maximum number of parents of one job. Its end is reported to all of them in one step."""
PAGE_NODES: Final = 32
"""Number of nodes that the server makes in one step, if each of them has few parents."""
PARENTS_OF_A_NODE: Final = 8
"""Number of parents that cost the server as much as another node, because it reads the name of each parent."""
PAGE_BYTES: Final = 65_536

Node: TypeAlias = FlowJob | DagNode


@dataclass(slots=True)
class PlannedNode:
    """A node with its number, which is its position in the plan, and the numbers of its parents and children."""

    node: Node
    parents: list[int] = field(default_factory=list[int])
    children: list[int] = field(default_factory=list[int])

    @property
    def job_name(self) -> str:
        """The name of the job."""
        node = self.node
        return node.job_name or node.name if isinstance(node, DagNode) else node.name


def plan_tree(root: FlowJob) -> list[PlannedNode]:
    """Return the nodes of a tree, level by level. Raises ValueError for too many."""
    plan = [PlannedNode(root)]
    waiting = deque([(0, root)])
    while waiting:
        number, node = waiting.popleft()
        for child in node.children:
            plan[number].children.append(len(plan))
            waiting.append((len(plan), child))
            plan.append(PlannedNode(child, [number]))
            _check_size(len(plan))
    _check_degrees(plan)
    return plan


def plan_dag(nodes: Sequence[DagNode]) -> list[PlannedNode]:
    """Return the nodes of a graph, each after all nodes that depend on it.

    Raises CycleError, and ValueError for an empty graph, a name that is used twice and a dependency without a node.
    """
    by_name = {node.name: node for node in nodes}
    _check_size(len(nodes))
    _check_names(nodes, by_name)
    dependents: dict[str, list[str]] = {node.name: [] for node in nodes}
    for node in nodes:
        for name in node.deps:
            dependents[name].append(node.name)
    try:
        order = list(TopologicalSorter(dependents).static_order())
    except GraphCycle as error:
        raise CycleError(error.args[1]) from None
    number_of = {name: number for number, name in enumerate(order)}
    plan = [
        PlannedNode(
            by_name[name],
            [number_of[parent] for parent in dependents[name]],
            [number_of[child] for child in by_name[name].deps],
        )
        for name in order
    ]
    _check_degrees(plan)
    return plan


def _check_names(nodes: Sequence[DagNode], by_name: dict[str, DagNode]) -> None:
    if not nodes:
        raise ValueError("a graph needs at least one node")
    if len(by_name) < len(nodes):
        names = [node.name for node in nodes]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two nodes of the graph are named {twice!r}; give each node its own name")
    for node in nodes:
        for name in node.deps:
            if name not in by_name:
                raise ValueError(f"node {node.name!r} depends on {name!r}, and no node of the graph has this name")


def _check_degrees(plan: Sequence[PlannedNode]) -> None:
    for planned in plan:
        if len(planned.children) > MOST_CHILDREN:
            raise ValueError(
                f"a job has at most {MOST_CHILDREN} children, and {planned.node.name!r} has {len(planned.children)}; "
                "add a level of jobs between them"
            )
        if len(planned.parents) > MOST_PARENTS:
            raise ValueError(
                f"a job has at most {MOST_PARENTS} parents, and {planned.node.name!r} has {len(planned.parents)}; "
                "add a level of jobs between them"
            )


def _check_size(count: int) -> None:
    if count > MOST_NODES:
        raise ValueError(f"a flow has at most {MOST_NODES} jobs, and this one has more; add several flows")


def pages_of(
    plan: Sequence[PlannedNode], requests: Sequence[AddRequest], bases: Sequence[str], first: int = 0
) -> list[bytes]:
    """Return the stored form of a plan, in pages. `bases` has the base key of each node's queue, "" for the home.

    `first` is the number of the first node. Raises PayloadTooLarge.
    """
    pages: list[bytes] = []
    size = 0
    for number, rows in _split(plan, requests, bases, first):
        # The decoder of the server knows no binary type.
        pages.append(msgpack.packb([number, rows], use_bin_type=False))
        size += len(pages[-1])
        if size > MOST_BYTES:
            raise PayloadTooLarge("flow", size, MOST_BYTES)
    return pages


def _split(
    plan: Sequence[PlannedNode], requests: Sequence[AddRequest], bases: Sequence[str], first: int
) -> Iterator[tuple[int, list[object]]]:
    rows: list[object] = []
    size = work = 0
    for number, (planned, request, base) in enumerate(zip(plan, requests, bases, strict=True), first):
        row = [base, *request, planned.node.on_failure[0], planned.parents, planned.children]
        # The job contains the names of its parents.
        bytes_of = len(request.data) + 5 * len(planned.children) + 32 * len(planned.parents)
        work_of = 1 + len(planned.parents) // PARENTS_OF_A_NODE
        if rows and (work + work_of > PAGE_NODES or size + bytes_of > PAGE_BYTES):
            yield first, rows
            first, rows, size, work = number, [], 0, 0
        rows.append(row)
        size += bytes_of
        work += work_of
    yield first, rows


def refs_of(
    plan: Sequence[PlannedNode], requests: Sequence[AddRequest], flow: str, home: str | None = None, first: int = 0
) -> list[JobRef]:
    """Return the queue and the id of each node's job, as functions/flow_jobs.lua names them.

    `home` is the queue with the plan, and the queue of the root without it. `first` is the number of the first node.
    """
    home = home or plan[0].node.queue_name
    refs: list[JobRef] = []
    for number, (planned, request) in enumerate(zip(plan, requests, strict=True), first):
        queue = planned.node.queue_name
        own = f"{flow}/{number}" if queue == home else f"{home}/{flow}/{number}"
        refs.append(JobRef(queue, (request.id or own) if number else flow))
    return refs


def check_ids(plan: Sequence[PlannedNode], requests: Sequence[AddRequest]) -> list[str]:
    """Return the custom ids of the nodes other than the root in the queue of the root. Raises ValueError for ids that
    do not fit."""
    if len(requests[0].id.encode()) > MOST_ROOT_ID_BYTES:
        raise ValueError(
            f"the job_id of the root of a flow has at most {MOST_ROOT_ID_BYTES} bytes, got {requests[0].id[:40]!r}…; "
            "the ids of the other jobs are derived from it"
        )
    seen: set[JobRef] = set()
    for planned, request in zip(plan, requests, strict=True):
        ref = JobRef(planned.node.queue_name, request.id)
        if request.id and ref in seen:
            raise ValueError(f"two jobs of the flow have job_id {request.id!r} in queue {ref.queue!r}")
        seen.add(ref)
    home = plan[0].node.queue_name
    own = [
        request.id
        for planned, request in zip(plan[1:], requests[1:], strict=True)
        if request.id and planned.node.queue_name == home
    ]
    if len(own) > MOST_OWN_IDS:
        raise ValueError(
            f"at most {MOST_OWN_IDS} jobs of a flow have a job_id in the queue of its root, and this one has {len(own)}"
        )
    return own
