"""Adds flows: trees and graphs of jobs."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from glidemq_async._internal.connectable import Connectable
from glidemq_async.client.outbox import Outbox
from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.errors import GlideMQError, QueueClosed
from glidemq_async.flows.added_children import AddedChild, Prepared, nodes_of, store_children
from glidemq_async.flows.instrumented import Additions, adding, note_added
from glidemq_async.flows.nodes import DagNode, FlowJob, JobNode, check_node
from glidemq_async.flows.plan import PlannedNode, check_ids, pages_of, plan_dag, plan_tree, refs_of
from glidemq_async.functions.flows import FlowReply
from glidemq_async.jobs.job import Job, run_of
from glidemq_async.jobs.snapshot import job_of_flow, job_of_gone
from glidemq_async.options.job_options import JobOptions
from glidemq_async.payloads.codecs import Codec
from glidemq_async.payloads.serialization import Serializer
from glidemq_async.queues.internals import client_of, prepare_request
from glidemq_async.queues.queue import Queue
from glidemq_async.storage import Storage, StorageLike, open_storage
from glidemq_async.storage.protocol import FunctionError
from glidemq_async.stored.flow import FlowRef, JobRef

AnyJob: TypeAlias = Job[Any, Any]
_log = logging.getLogger(__name__)


@runtime_checkable
class App(Protocol):
    """An object with queues, for example GlideMQ."""

    def queue(self, name: str) -> Queue[Any, Any]:
        """Return the queue with this name, always the same object."""
        ...


Item = TypeVar("Item")


class FlowProducer(Connectable):
    """Adds flows to the queues of an app or of a storage.

    `source` is a GlideMQ app, whose queues and settings apply, or the `storage` of a Queue: a URL, a Storage, a client
    of redis.asyncio, or None. With a storage, `prefix`, `default_options`, `serializer`, `codecs`, `payload_limit` and
    `timeout` have the same meaning as for Queue, and apply to all queues. With an app they are not allowed. Raises
    TypeError or ValueError for bad settings.

    Use it as an async context manager, or call `connect()` and `close()`. Closing it does not close an app.
    """

    def __init__(
        self,
        source: StorageLike | App = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        default_options: JobOptions | None = None,
        serializer: Serializer | None = None,
        codecs: Sequence[Codec] = (),
        payload_limit: int | None = None,
        timeout: float | timedelta | None = None,
    ) -> None:
        self._app: App | None = None
        self._queues: dict[str, Queue[Any, Any]] = {}
        self._closed = False
        self._owned: Storage | None = None
        given = (default_options, serializer, payload_limit, timeout)
        if isinstance(source, App):
            if prefix != DEFAULT_PREFIX or codecs or any(option is not None for option in given):
                raise TypeError("the queues of an app have its settings; give FlowProducer no settings besides the app")
            self._app = source
            return
        self._storage = open_storage(source, timeout=timeout)
        if not isinstance(source, Storage):
            self._owned = self._storage
        self._settings: dict[str, Any] = {
            "prefix": prefix,
            "default_options": default_options,
            "serializer": serializer,
            "codecs": codecs,
            "payload_limit": payload_limit,
        }

    def __repr__(self) -> str:
        return f"<FlowProducer of {self._app if self._app is not None else self._storage.url}>"

    async def connect(self) -> None:
        """Check that the producer is open. Queues connect when a flow needs them. Raises QueueClosed after `close`."""
        if self._closed:
            raise QueueClosed("the FlowProducer is closed; create a new one")

    async def close(self) -> None:
        """Close the queues that it has opened. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            for queue in self._queues.values():
                await queue.close()
        finally:
            if self._owned is not None:
                await self._owned.close()

    async def add(self, flow: FlowJob) -> JobNode:
        """Add a tree of jobs. When this returns, the whole tree is stored, and each of its jobs will end exactly once.

        A job starts after all of its children have ended. Until then its state is `waiting-children`. The jobs may be
        in different queues, also in different cluster slots. The root and its plan are stored in one call in the queue
        of the root; jobs of other queues follow from there. If the `job_id` of the root is in use, nothing is stored:
        `node.job` is the existing job, and its `outcome` is "duplicate" or "completed".

        Raises TypeError or ValueError for bad options, for a `job_id` of another job that is in use in the queue of the
        root, and for a flow that is too large. Raises SerializationError and PayloadTooLarge before anything is sent,
        and QueueFull and StorageUnavailable like `Queue.add`.
        """
        if not isinstance(flow, FlowJob):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a flow must be a FlowJob, got {flow!r}")
        plan = plan_tree(flow)
        jobs = await self._add(plan)
        return nodes_of(plan, jobs) if len(jobs) == len(plan) else JobNode(jobs[0])

    async def add_bulk(self, flows: Iterable[FlowJob]) -> list[JobNode]:
        """Add several trees, one after the other. Return one node for each. Each tree is stored whole or not at all.

        All trees are checked before the first is sent. Raises what `add` raises; the trees before the failed one are
        stored.
        """
        trees = list(flows)
        for tree in trees:
            if not isinstance(tree, FlowJob):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"each flow must be a FlowJob, got {tree!r}")
        plans = [plan_tree(tree) for tree in trees]
        added: list[list[AnyJob]] = []
        with adding(plans, self._queue) as additions:
            prepared = [self._prepare(plan, some) for plan, some in zip(plans, additions, strict=True)]
            for plan, ready, some in zip(plans, prepared, additions, strict=True):
                added.append(await self._store(plan, ready))
                note_added(some, added[-1])
        return [
            nodes_of(plan, jobs) if len(jobs) == len(plan) else JobNode(jobs[0])
            for plan, jobs in zip(plans, added, strict=True)
        ]

    async def add_dag(self, nodes: Iterable[DagNode]) -> dict[str, AnyJob]:
        """Add a graph of jobs: a job may be a dependency of several others. Return the jobs by the names of the nodes.

        A node starts after all nodes in its `deps` have ended. Stored and refused like a tree; the first node on which
        no other node depends takes the place of the root. If its `job_id` is in use, the result contains only that job.

        Raises CycleError, which shows the cycle, before anything is sent. Raises ValueError for a dependency that is
        not in the graph and for a name that is used twice, and what `add` raises.
        """
        given = list(nodes)
        for node in given:
            if not isinstance(node, DagNode):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"each node must be a DagNode, got {node!r}")
        plan = plan_dag(given)
        jobs = await self._add(plan)
        return {planned.node.name: job for planned, job in zip(plan, jobs, strict=False)}

    async def add_children(self, job: AnyJob, children: Iterable[FlowJob]) -> list[JobNode]:
        """Add children to a running job, in its handler. Return their nodes.

        The children start immediately. `await job.move_to_waiting_children()` then ends the run, and the job runs again
        when all of its children have ended. A job that ends without that cancels the children that have not ended.
        `on_failure` of a child applies as in `add`, when the job waits.

        A child with the `job_id` of an earlier child of this job is not added again: its `outcome` is "duplicate". So a
        later run can repeat the call. An id that another job has counts as a failure of the child.

        Each child is stored whole or not at all, with the jobs below it, which can be 1,000 jobs. Many children need
        several calls to the server. Raises LeaseLost and JobNotFound if the job does not belong to this run any more,
        JobStateError outside of its handler, ValueError for more than 10,000 children, and what `add` raises before it
        sends.
        """
        client, entry = run_of(job)
        home = self._queue(job.queue)
        if client_of(home).keys.base != client.keys.base:
            raise ValueError(f"this FlowProducer has another prefix than job {job.id}; give both the same prefix")
        trees = list(children)
        for tree in trees:
            if not isinstance(tree, FlowJob):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"each child must be a FlowJob, got {tree!r}")
        plans = [plan_tree(tree) for tree in trees]
        parent = JobRef(job.queue, job.id)
        with adding(plans, self._queue) as additions:
            added = [
                AddedChild(plan, self._prepare(plan, some), parent, client.keys.base)
                for plan, some in zip(plans, additions, strict=True)
            ]
            await self._check_modes([one for child in added for one in child.prepared])
            has_rest = await store_children(client, entry, added)
            for child, some in zip(added, additions, strict=True):
                note_added(some, child.jobs)
        if has_rest:
            await self._relay(home)
        return [child.node() for child in added]

    async def _add(self, plan: list[PlannedNode]) -> list[AnyJob]:
        with adding([plan], self._queue) as [additions]:
            jobs = await self._store(plan, self._prepare(plan, additions))
            note_added(additions, jobs)
        return jobs

    def _queue(self, name: str) -> Queue[Any, Any]:
        if self._closed:
            raise QueueClosed("the FlowProducer is closed; create a new one")
        if self._app is not None:
            return self._app.queue(name)
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = Queue(name, self._storage, **self._settings)
        return found

    def _prepare(self, plan: Sequence[PlannedNode], additions: Additions) -> list[Prepared]:
        """Return the queue, the request and the options of each node. Raises the errors of `Queue.add`."""
        prepared: list[Prepared] = []
        for planned, addition in zip(plan, additions, strict=True):
            node = planned.node
            queue = self._queue(node.queue_name)
            request, options = prepare_request(queue, planned.job_name, node.data, node.options, addition)
            check_node(node.name, options, node.on_failure)
            prepared.append((queue, request, options))
        return prepared

    async def _store(self, plan: Sequence[PlannedNode], prepared: Sequence[Prepared]) -> list[AnyJob]:
        """Store a plan. Return the job of each node, or only the existing job of the root."""
        requests = [request for _, request, _ in prepared]
        own_ids = check_ids(plan, requests)
        home = prepared[0][0]
        bases = ["" if queue is home else client_of(queue).keys.base for queue, _, _ in prepared]
        stamp = uuid.uuid4().hex
        reply = await self._send(prepared, own_ids, pages_of(plan, requests, bases), stamp)
        if reply.status == "taken":
            raise ValueError(
                f"the flow was not added: queue {home.name!r} has a job with id {reply.id!r}, which a node of the flow "
                "has as its job_id"
            )
        if reply.status != "added":
            return [await _existing(home, reply)]
        if reply.has_rest:
            await self._relay(home)
        return _jobs(plan, prepared, reply, stamp)

    async def _send(
        self, prepared: Sequence[Prepared], own_ids: Sequence[str], pages: Sequence[bytes], stamp: str
    ) -> FlowReply:
        """Send a plan to the queue of its root. If the queue was obliterated or lost, open it again first."""
        home, root, options = prepared[0]
        while True:
            await self._check_modes(prepared)
            client = client_of(home)
            functions = client.functions
            meant = functions.caller.incarnation
            try:
                return await functions.flows.add(root.id, stamp, len(prepared), own_ids, pages, options.durability)
            except FunctionError as error:
                # The server refuses an UNDECLARED call before it stores the plan, so the plan can be sent again.
                if error.code != "UNDECLARED":
                    raise client.refused(error) from None
            await client.open_again(meant)

    async def _check_modes(self, prepared: Sequence[Prepared]) -> None:
        for queue, _, options in prepared:
            client = client_of(queue)
            if client.state is None:
                await queue.connect()
            if not client.fits(options.key):
                await client.refuse_key(options.key)

    async def _relay(self, home: Queue[Any, Any]) -> None:
        """Make the rest of the jobs and send those of other queues."""
        client = client_of(home)
        try:
            await Outbox(client, client.id).relay()
        except GlideMQError as error:
            # The flow is stored. The workers of the queue try again until they succeed.
            _log.warning("some jobs of a flow in queue %r are not in their queues yet: %s", home.name, error)


async def _existing(home: Queue[Any, Any], reply: FlowReply) -> AnyJob:
    found = await home.get_job(reply.id)
    job = found if found is not None else job_of_gone(client_of(home), reply.id)
    job.outcome = "completed" if reply.status == "completed" else "duplicate"
    return job


def _jobs(plan: Sequence[PlannedNode], prepared: Sequence[Prepared], reply: FlowReply, stamp: str) -> list[AnyJob]:
    """Return the jobs of a flow that was added."""
    refs = refs_of(plan, [request for _, request, _ in prepared], reply.id)
    home = client_of(prepared[0][0])
    jobs: list[AnyJob] = []
    for number, (planned, (queue, request, options)) in enumerate(zip(plan, prepared, strict=True)):
        client = client_of(queue)
        parents: tuple[JobRef, ...] = tuple(refs[parent] for parent in planned.parents)
        ref = FlowRef("" if client is home else home.keys.base, reply.id, stamp, number, parents)
        job = job_of_flow(client, request, refs[number].job_id, reply.now, ref, options, waits=bool(planned.children))
        jobs.append(job)
    return jobs
