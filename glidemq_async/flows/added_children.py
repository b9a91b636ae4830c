"""Adds children to a running job."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import PayloadTooLarge
from glidemq_async.flows.nodes import JobNode
from glidemq_async.flows.plan import MOST_CHILDREN, PlannedNode, pages_of, refs_of
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.children import AddedChildren, Pages, RefusedChildren
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.reply_codes import check_reply
from glidemq_async.jobs.snapshot import job_of_flow, job_of_gone
from glidemq_async.options.job_options import JobOptions
from glidemq_async.queues.internals import client_of
from glidemq_async.queues.queue import Queue
from glidemq_async.stored.flow import FlowRef, JobRef

AnyJob: TypeAlias = Job[Any, Any]
Prepared: TypeAlias = tuple[Queue[Any, Any], AddRequest, JobOptions]

MOST_JOBS: Final = 1_000
"""Maximum number of jobs in one child, with the jobs below it."""
MOST_BYTES: Final = 1_114_112
"""Maximum size of one child with the jobs below it, in bytes: 1 MiB, and the options of its jobs."""
MOST_JOBS_OF_A_CALL: Final = 200
_BYTES_OF_A_CALL: Final = 524_288
_SEPARATOR: Final = "\x1f"


@dataclass(slots=True)
class AddedChild:
    """A child that is added to the job `parent`, and the jobs below it. `home` is the base key of the parent."""

    plan: list[PlannedNode]
    prepared: list[Prepared]
    parent: JobRef
    home: str
    size: int = 0
    jobs: list[AnyJob] = field(default_factory=list[AnyJob])

    def __post_init__(self) -> None:
        self.size = sum(len(request.data) + len(request.opts) for _, request, _ in self.prepared)
        name = self.plan[0].node.name
        if len(self.plan) > MOST_JOBS:
            raise ValueError(
                f"a child that is added to a running job has at most {MOST_JOBS} jobs below it, and {name!r} has "
                f"{len(self.plan) - 1}; let it add some of them itself when it runs"
            )
        if self.size > MOST_BYTES:
            raise PayloadTooLarge(f"child {name!r}", self.size, MOST_BYTES)

    @property
    def bases(self) -> list[str]:
        """The base key of each job's queue, "" for the queue of the parent."""
        keys = [client_of(queue).keys.base for queue, _, _ in self.prepared]
        return ["" if base == self.home else base for base in keys]

    @property
    def own_key(self) -> str:
        """The base key and the id of a child with a `job_id`, else ""."""
        own = self.prepared[0][1].id
        return f"{client_of(self.prepared[0][0]).keys.base}{_SEPARATOR}{own}" if own else ""

    def numbered(self, first: int) -> list[PlannedNode]:
        """Return the nodes with numbers from `first` on, below node 0, which is the parent."""
        return [
            PlannedNode(one.node, [first + number for number in one.parents] or [0], [first + n for n in one.children])
            for one in self.plan
        ]

    def note(self, reply: AddedChildren, first: int, stamp: str) -> None:
        """Keep the jobs of a child that was added, with numbers from `first` on."""
        requests = [request for _, request, _ in self.prepared]
        nodes = self.numbered(first)
        known: dict[int, JobRef] = {0: self.parent}
        known.update(enumerate(refs_of(self.plan, requests, reply.flow, self.parent.queue, first), first))
        for number, (planned, (queue, request, options)) in enumerate(zip(nodes, self.prepared, strict=True), first):
            client = client_of(queue)
            home = "" if client.keys.base == self.home else self.home
            ref = FlowRef(home, reply.flow, stamp, number, tuple(known[parent] for parent in planned.parents))
            job_id, waits = known[number].job_id, bool(planned.children)
            self.jobs.append(job_of_flow(client, request, job_id, reply.now, ref, options, waits=waits))

    def note_known(self) -> None:
        """Note that the parent already has this child."""
        queue, request, _ = self.prepared[0]
        job = job_of_gone(client_of(queue), request.id)
        job.outcome = "duplicate"
        self.jobs.append(job)

    def node(self) -> JobNode:
        """Return the child with the jobs below it, or only the child if it was added before."""
        return nodes_of(self.plan, self.jobs) if len(self.jobs) == len(self.plan) else JobNode(self.jobs[0])


async def store_children(client: QueueClient, entry: str, additions: Sequence[AddedChild]) -> bool:
    """Store the children of a running job, in several calls if they are many. Return whether a relay has work to do.

    Raises LeaseLost, JobNotFound, and ValueError for too many children.
    """
    keys = [one.own_key for one in additions if one.own_key]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1).partition(_SEPARATOR)[2]
        raise ValueError(f"two children have job_id {twice!r}; give each child its own id")
    has_rest, first = False, 1
    for part in _parts(additions):
        rest = list(part)
        while rest:
            stamp = uuid.uuid4().hex
            reply = await _add(client, entry, stamp, first, rest)
            if isinstance(reply, AddedChildren):
                first = _note_all(rest, reply, stamp)
                has_rest = has_rest or reply.has_rest
                break
            first = _after_refusal(reply, first, rest)
    return has_rest


async def _add(
    client: QueueClient, entry: str, stamp: str, first: int, additions: Sequence[AddedChild]
) -> AddedChildren | RefusedChildren:
    children: list[tuple[int, str]] = []
    packed: list[bytes] = []
    number = first
    for one in additions:
        children.append((number, one.own_key))
        requests = [request for _, request, _ in one.prepared]
        packed += pages_of(one.numbered(number), requests, one.bases, number)
        number += len(one.plan)
    job_id = additions[0].parent.job_id
    return await client.functions.children.add(job_id, entry, stamp, first, children, Pages(packed, number - first))


def _note_all(additions: Sequence[AddedChild], reply: AddedChildren, stamp: str) -> int:
    """Keep the jobs of children that were added. Return the number after their last one."""
    number = reply.first
    for one in additions:
        one.note(reply, number, stamp)
        number += len(one.plan)
    return number


def _after_refusal(reply: RefusedChildren, first: int, additions: list[AddedChild]) -> int:
    """Remove the children that are known from the list. Return the number with which the next call begins."""
    if reply.status == "next":
        return reply.numbers[0]
    if reply.status == "known":
        for position in reversed(reply.numbers):
            additions.pop(position - 1).note_known()
        return first
    job_id = additions[0].parent.job_id
    if reply.status == "full":
        raise ValueError(
            f"a job has at most {MOST_CHILDREN} children, and job {job_id} would have more; add a level of jobs "
            "between them"
        )
    check_reply(reply.status, "add children to", job_id)
    raise AssertionError(reply.status)


def _parts(additions: Sequence[AddedChild]) -> Iterator[Sequence[AddedChild]]:
    """Divide children into parts for one call each."""
    part: list[AddedChild] = []
    jobs = size = 0
    for one in additions:
        if part and (jobs + len(one.plan) > MOST_JOBS_OF_A_CALL or size + one.size > _BYTES_OF_A_CALL):
            yield part
            part, jobs, size = [], 0, 0
        part.append(one)
        jobs, size = jobs + len(one.plan), size + one.size
    if part:
        yield part


def nodes_of(plan: Sequence[PlannedNode], jobs: Sequence[AnyJob]) -> JobNode:
    """Return the nodes of a tree with their jobs."""
    nodes = [JobNode(job) for job in jobs]
    for planned, node in zip(plan, nodes, strict=True):
        node.children.extend(nodes[child] for child in planned.children)
    return nodes[0]
