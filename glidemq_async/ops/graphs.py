"""The graph of a flow: its jobs, their states, and which of them wait for which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import JobNotFound
from glidemq_async.functions.graphs import FlowJobRow, FlowNodeRow
from glidemq_async.ops.graph_drawings import graph_mermaid, graph_svg
from glidemq_async.ops.graph_layout import levels_of
from glidemq_async.ops.graph_parts import GraphNode, GraphParts
from glidemq_async.queues.internals import client_of
from glidemq_async.queues.queue import Queue
from glidemq_async.stored.flow import JobRef, flow_of
from glidemq_async.stored.names import QueueKeys

MOST_NODES: Final = 100_000
"""Maximum number of nodes that are read."""
MOST_DRAWN: Final = 300
"""Number of nodes above which a drawing has one node for all jobs of a level with the same state."""
_MOST_PLANS: Final = 100
"""Maximum number of jobs whose added children are read."""
_ADDED_LOOKED_UP: Final = 2_000
"""Number of nodes above which ended jobs are not asked for children that they have added."""
PLANNED: Final = "planned"
CANCELLED: Final = "cancelled"
_CANCELLED_REASONS: Final = frozenset({"cancelled", "not started"})
_POLICIES: Final = {"f": "fail", "w": "wait", "c": "collect", "i": "ignore", "r": "remove"}

_Plan: TypeAlias = tuple[str, str, str]
"""The base key of the queue that stores a plan, its id, and its stamp ("" for any)."""


@dataclass(frozen=True, slots=True)
class FlowGraph(GraphParts):
    """The graph of a flow, and its drawings."""

    def collapsed(self, most: int = MOST_DRAWN) -> FlowGraph:
        """Return the graph itself, or with more than `most` nodes, one with a node per level and state."""
        return self if len(self.nodes) <= most else _collapsed(self)

    def to_svg(self, *, styled: bool = True, link: Callable[[GraphNode], str] | None = None) -> str:
        """Return a drawing of the graph as SVG, collapsed if it is large. It has a title, a description and texts.

        `styled=False` leaves the style sheet out, for pages that include `drawings.STYLE` once. `link` returns the
        address of a node.
        """
        return graph_svg(self.collapsed(), styled=styled, link=link)

    def to_mermaid(self) -> str:
        """Return the graph as a flowchart of Mermaid, collapsed if it is large."""
        return graph_mermaid(self.collapsed())


async def read_flow_graph(queue: Queue[Any, Any], job_id: str) -> FlowGraph:
    """Return the graph of the flow to which a job belongs, with the children that runs of its jobs have added.

    The jobs may be in any queues. A job without a flow is a graph with one node. Raises JobNotFound if neither the job
    nor a flow with this id is known; a flow is known for a day after its last job has ended.
    """
    client = client_of(queue)
    await client.open()
    found = (await client.functions.reading.get_outlines([job_id]))[0]
    focus = JobRef(queue.name, job_id)
    reader = _FlowReader(client)
    ref = flow_of(found.get(b"opts", b""))
    plan = (ref.home or client.keys.base, ref.flow, ref.stamp) if ref else (client.keys.base, job_id, "")
    if not await reader.read(plan) and not found:
        raise JobNotFound(
            f"queue {queue.name!r} has no job and no flow {job_id!r}; a flow is known for a day after its last job has "
            "ended"
        )
    if found and focus not in reader.nodes:
        reader.nodes[focus] = GraphNode(*focus, found[b"name"].decode(), "")
    await reader.read_states()
    return reader.graph(focus)


class _FlowReader:
    """Collects the nodes of a flow from its plan, and from the plans of children that jobs have added."""

    def __init__(self, client: QueueClient) -> None:
        self._client = client
        self._clients = {client.keys.queue: client}
        self.nodes: dict[JobRef, GraphNode] = {}
        self._edges: dict[tuple[JobRef, JobRef], None] = {}
        self._plans: set[_Plan] = set()
        self._is_complete = True

    async def read(self, plan: _Plan, root: JobRef | None = None) -> bool:
        """Read the nodes of a plan. `root` is the job whose run has added the children. Return whether it is known."""
        base, flow, stamp = plan
        client = self._client.at(base)
        self._plans.add(plan)
        rows = await client.functions.graphs.read_flow(flow, stamp, MOST_NODES - len(self.nodes))
        if rows is None:
            return False
        refs = {row.number: root if root and row.number == 0 else _ref(row) for row in rows}
        for row in rows:
            self._note(row, refs)
        return True

    def _note(self, row: FlowNodeRow, refs: Mapping[int, JobRef]) -> None:
        ref = refs[row.number]
        if ref not in self.nodes:
            self.nodes[ref] = GraphNode(*ref, row.name, _ending_of(row), row.reason, _POLICIES.get(row.policy, ""))
        for child in row.children:
            if child in refs:
                self._edges[refs[child], ref] = None
            else:
                self._is_complete = False

    async def read_states(self) -> None:
        """Read the states of the jobs that have not ended, and the children that these and added jobs have added."""
        seen: set[JobRef] = set()
        while len(self._plans) < _MOST_PLANS:
            few = len(self.nodes) <= _ADDED_LOOKED_UP
            wanted = [ref for ref, node in self.nodes.items() if ref not in seen and (few or not node.state)]
            if not wanted:
                return
            seen.update(wanted)
            for ref, row in await self._jobs(wanted):
                self._note_state(ref, row)
                if row.added and len(self._plans) < _MOST_PLANS:
                    stamp, flow = row.added
                    await self.read((self._at(ref.queue).keys.base, flow, stamp), ref)

    def _note_state(self, ref: JobRef, row: FlowJobRow) -> None:
        node = self.nodes[ref]
        if not node.state:
            self.nodes[ref] = replace(node, state=row.state or PLANNED)

    async def _jobs(self, refs: Sequence[JobRef]) -> list[tuple[JobRef, FlowJobRow]]:
        by_queue: dict[str, list[str]] = {}
        for ref in refs:
            by_queue.setdefault(ref.queue, []).append(ref.job_id)
        found: list[tuple[JobRef, FlowJobRow]] = []
        for queue, ids in by_queue.items():
            rows = await self._at(queue).functions.graphs.read_jobs(ids)
            found += [(JobRef(queue, one), row) for one, row in zip(ids, rows, strict=True)]
        return found

    def _at(self, queue: str) -> QueueClient:
        if queue not in self._clients:
            self._clients[queue] = self._client.sibling(queue)
        return self._clients[queue]

    def graph(self, focus: JobRef) -> FlowGraph:
        """Return what was read as a graph."""
        position = {ref: number for number, ref in enumerate(self.nodes)}
        edges = [(position[child], position[parent]) for child, parent in self._edges]
        levels = levels_of(len(position), edges)
        nodes = [
            replace(node, level=levels[number], is_focus=ref == focus)
            for number, (ref, node) in enumerate(self.nodes.items())
        ]
        is_complete = self._is_complete and len(nodes) < MOST_NODES
        return FlowGraph(*focus, tuple(nodes), tuple(edges), len(nodes), _counted(nodes), is_complete)


def _ref(row: FlowNodeRow) -> JobRef:
    return JobRef(QueueKeys.of(row.base).queue, row.id)


def _ending_of(row: FlowNodeRow) -> str:
    if row.ending == "c":
        return "completed"
    if row.ending == "f":
        return CANCELLED if row.reason in _CANCELLED_REASONS else "failed"
    return ""


def _counted(nodes: Iterable[GraphNode]) -> dict[str, int]:
    return dict(Counter(node.state for node in nodes))


def _collapsed(graph: FlowGraph) -> FlowGraph:
    groups: dict[tuple[int, str], list[GraphNode]] = {}
    for node in sorted(graph.nodes, key=lambda one: (one.level, one.state)):
        groups.setdefault((node.level, node.state), []).append(node)
    position = {group: number for number, group in enumerate(groups)}
    place = [position[node.level, node.state] for node in graph.nodes]
    edges = dict.fromkeys((place[child], place[parent]) for child, parent in graph.edges)
    return replace(graph, nodes=tuple(map(_group, groups.values())), edges=tuple(edges))


def _group(nodes: Sequence[GraphNode]) -> GraphNode:
    if len(nodes) == 1:
        return nodes[0]
    names, queues = ({node.name for node in nodes}, {node.queue for node in nodes})
    first = nodes[0]
    return replace(
        first,
        queue=first.queue if len(queues) == 1 else f"{len(queues)} queues",
        id="",
        name=first.name if len(names) == 1 else f"{len(names)} names",
        reason="",
        policy="",
        count=len(nodes),
        is_focus=any(node.is_focus for node in nodes),
    )
