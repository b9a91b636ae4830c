"""Random trees and graphs over two queues, and the rules that their events must keep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from glidemq_async import DagNode, FlowJob, FlowProducer, JobNode, QueueEvent
from glidemq_async.flows.nodes import FailurePolicy
from tests.crash.flow_worker import QUEUES, Action, Task, options_of

POLICIES: Final[tuple[FailurePolicy, ...]] = ("fail", "fail", "wait", "collect", "ignore", "remove")
ACTIONS: Final[tuple[Action, ...]] = ("complete",) * 16 + ("fail", "fail", "fail first", "add children")
MOST_NODES: Final = 12
CANCELLED: Final = ("flow", "revoked: no parent needs it")
"""Details of the end of a job that no parent needs."""

Place = tuple[str, str]
"""The queue and the id of a job."""


@dataclass
class Node:
    """A job of a flow. The parents of a node have lower numbers."""

    place: Place
    policy: FailurePolicy
    children: list[Node]
    parents: list[Node]
    is_ended_by_user: bool = False

    @property
    def fails_parents(self) -> bool:
        """Whether its end without a result makes its parents fail."""
        return self.policy in {"fail", "wait"}

    def below(self) -> Iterator[Node]:
        """Return all nodes below this one. A node of a graph may occur several times."""
        for child in self.children:
            yield child
            yield from child.below()


class Stop(NamedTuple):
    """The root of a tree was cancelled, and the call returned at this instant, in ms."""

    root: Node
    at: float


async def add_flow(draw: Random, flows: FlowProducer) -> list[Node]:
    """Add a random tree or graph. Return its nodes; the first one is the root of a tree."""
    count, is_tree = draw.randint(1, MOST_NODES), draw.random() < 0.5
    parents = [
        sorted(draw.sample(range(number), min(number, 1 if is_tree else draw.randint(1, 3)))) for number in range(count)
    ]
    children = [[child for child in range(count) if number in parents[child]] for number in range(count)]
    queues = [draw.choice(QUEUES) for _ in range(count)]
    policies: list[FailurePolicy] = [draw.choice(POLICIES) for _ in range(count)]
    tasks: list[Task] = [
        {"action": draw.choice(ACTIONS), "sleep": draw.choice((0.0, 0.0, 0.0, 0.02, 0.1))} for _ in range(count)
    ]

    def tree(number: int) -> FlowJob:
        below = [tree(child) for child in children[number]]
        return FlowJob("job", queues[number], tasks[number], options_of(), below, policies[number])

    def numbered(node: JobNode, number: int) -> Iterator[tuple[int, Place]]:
        yield number, (node.job.queue, node.job.id)
        for below, child in zip(node.children, children[number], strict=True):
            yield from numbered(below, child)

    if is_tree:
        places = dict(numbered(await flows.add(tree(0)), 0))
    else:
        dag = [
            DagNode(str(number), queues[number], tasks[number], options_of(), list(map(str, children[number])), policy)
            for number, policy in enumerate(policies)
        ]
        places = {int(name): (job.queue, job.id) for name, job in (await flows.add_dag(dag)).items()}
    nodes = [Node(places[number], policies[number], [], []) for number in range(count)]
    for number, node in enumerate(nodes):
        node.children = [nodes[child] for child in children[number]]
        node.parents = [nodes[parent] for parent in parents[number]]
    return nodes


@dataclass
class History:
    """The events of the jobs of both queues."""

    events: dict[Place, list[QueueEvent]] = field(default_factory=lambda: defaultdict(list))

    def add(self, queue: str, event: QueueEvent) -> None:
        """Note an event."""
        self.events[queue, event.job_id].append(event)

    def ends(self, node: Node) -> list[QueueEvent]:
        """Return the ends of a job. Removing a job that has ended is not another end."""
        return [event for event in self.events[node.place] if _is_end(event)]

    def endless(self) -> list[Place]:
        """Return the jobs that were added and do not have exactly one end. Handlers add jobs, too."""
        return [
            place
            for place, events in self.events.items()
            if any(event.kind == "added" for event in events) and sum(map(_is_end, events)) != 1
        ]

    def starts(self, node: Node) -> list[float]:
        """Return when the runs of a job started, in ms."""
        return [_ms(event) for event in self.events[node.place] if event.kind == "active"]

    def has_completed(self, node: Node) -> bool:
        """Return whether a job has a result."""
        return [event.kind for event in self.ends(node)] == ["completed"]

    def faults(self, nodes: list[Node]) -> list[str]:
        """Return what is wrong with the jobs of a flow."""
        return [f"{node.place}: {fault}" for node in nodes for fault in self._faults(node)]

    def _faults(self, node: Node) -> Iterator[str]:
        ends, starts = self.ends(node), self.starts(node)
        # A node whose parents ended before it was made has no events.
        if len(ends) > 1 or (not ends and (starts or not node.parents)):
            yield f"has {len(ends)} ends"
        if not ends or ends[0].detail in CANCELLED:
            yield from (f"was cancelled, but {each.place} has started" for each in node.parents if self.starts(each))
        if not ends:
            return
        harmful = [each for each in node.children if not self.has_completed(each) and each.fails_parents]
        if starts:
            yield from self._faults_of_start(node, min(starts), harmful)
        elif ends[0].kind == "failed" and not (node.is_ended_by_user or harmful or ends[0].detail in CANCELLED):
            yield f"failed without a reason: {ends[0].detail}"
        if ends[0].kind == "removed" and not node.is_ended_by_user and ends[0].detail not in CANCELLED:
            yield f"was removed: {ends[0].detail}"
        if ends[0].kind == "completed" and harmful:
            yield f"completed, although {harmful[0].place} has no result"

    def _faults_of_start(self, node: Node, start: float, harmful: list[Node]) -> Iterator[str]:
        if harmful:
            yield f"started, although {harmful[0].place} has no result"
        for child in node.children:
            if any(_ms(event) > start for event in self.ends(child)):
                yield f"started before the end of {child.place}"
            if any(each > start for each in self.starts(child)):
                yield f"started before the run of {child.place}"

    def late_starts(self, stop: Stop) -> list[Place]:
        """Return the jobs below a cancelled root that started after the call had returned."""
        return [node.place for node in stop.root.below() if any(start > stop.at for start in self.starts(node))]

    def wrong_results(self, nodes: list[Node], found: dict[Place, object]) -> list[str]:
        """Return the completed jobs whose result is not 1 + the sum of the results of their children."""
        expected: dict[Place, int] = {}
        for node in reversed(nodes):
            expected[node.place] = 1 + sum(expected[each.place] for each in node.children if self.has_completed(each))
        return [
            f"{node.place} has the result {found[node.place]} and not {expected[node.place]}"
            for node in nodes
            if node.place in found and found[node.place] != expected[node.place]
        ]


def _is_end(event: QueueEvent) -> bool:
    if event.kind == "removed":
        return event.detail not in {"completed", "failed"}
    return event.kind in {"completed", "failed"}


def _ms(event: QueueEvent) -> float:
    return event.at.timestamp() * 1000
