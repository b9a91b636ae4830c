"""The operations core: the queues of a prefix, seen and changed by people and tools."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.errors import JobNotFound
from glidemq_async.functions.callers import Functions
from glidemq_async.ops.actor import Actor
from glidemq_async.ops.alerts.methods import AlertMethods
from glidemq_async.ops.bulk.methods import OperationMethods
from glidemq_async.ops.connections import Connections
from glidemq_async.ops.explain import Explanations
from glidemq_async.ops.failures import FailureGroup, read_failures, read_groups_with_failed_jobs
from glidemq_async.ops.graphs import FlowGraph, read_flow_graph
from glidemq_async.ops.history import HistoryEntry
from glidemq_async.ops.jobs import JobMethods
from glidemq_async.ops.listing import Listings
from glidemq_async.ops.looking import Looking
from glidemq_async.ops.queue_changes import QueueChanges
from glidemq_async.ops.running import RunningMethods
from glidemq_async.ops.settings import Settings
from glidemq_async.ops.waterfall import Waterfall, read_waterfall
from glidemq_async.ops.worker_control import WorkerControl
from glidemq_async.queues.queue import Queue
from glidemq_async.storage import Storage, StorageLike
from glidemq_async.tasks.app import GlideMQ


class Ops(
    Looking,
    Listings,
    JobMethods,
    OperationMethods,
    QueueChanges,
    Settings,
    Explanations,
    WorkerControl,
    AlertMethods,
    RunningMethods,
):
    """The operations core of one prefix: what operators look at, and what they change.

    The HTTP API, the pages, the command line and the terminal view are built on it. Use it as an async context manager.
    With an `app` it uses the storage, the prefix, the codecs and the tasks of that app, which stays open at the end;
    `Ops.of(mq)` is the same. `actor` names the person in audit lines (default: the user of this process). A storage
    that is passed as an object stays open too.

    Nothing here creates a queue. All methods raise StorageUnavailable if the server cannot be reached. The constructor
    raises ValueError for a storage together with an app.
    """

    def __init__(
        self,
        storage: StorageLike = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        app: GlideMQ[Any] | None = None,
        actor: Actor | None = None,
    ) -> None:
        if app is not None and storage is not None:
            raise ValueError("an app has its own storage; pass storage= or app=, not both")
        self._begin(Connections(storage, prefix, app), actor or Actor.here())

    @classmethod
    def of(cls, app: GlideMQ[Any], *, actor: Actor | None = None) -> Self:
        """Return the operations core of an app."""
        return cls(app=app, actor=actor)

    def acting_as(self, actor: Actor) -> Self:
        """Return the core for another actor. It shares the connections, and is closed with the original."""
        other = object.__new__(type(self))
        other._begin(self._connections, actor)
        return other

    def __repr__(self) -> str:
        return f"<Ops of {self.prefix!r} on {self.storage.url} for {self.actor.name}>"

    @property
    def storage(self) -> Storage:
        """The storage of the queues."""
        return self._connections.storage

    @property
    def prefix(self) -> str:
        """The prefix of the queues."""
        return self._connections.prefix

    @property
    def system(self) -> Functions:
        """The calls to the queue `system/ops`, for the parts of the operations core."""
        return self._connections.system

    @property
    def app(self) -> GlideMQ[Any] | None:
        """The app whose tasks and codecs are used."""
        return self._connections.app

    async def __aenter__(self) -> Self:
        await self._connections.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the queues, and the storage if it was opened here. Idempotent."""
        await self._connections.close()

    async def flow_graph(self, queue: str, job_id: str) -> FlowGraph:
        """Return the graph of the flow of a job, or of a run with its calls. Raises QueueNotFound and JobNotFound."""
        return await read_flow_graph(await self.queue(queue), job_id)

    async def waterfall(self, queue: str, job_id: str) -> Waterfall:
        """Return the attempts, steps and waits of a run, or of any job with steps, and their times.

        Raises QueueNotFound and JobNotFound.
        """
        return await read_waterfall(await self.queue(queue), job_id)

    async def failures(self, queue: str | None = None) -> list[FailureGroup]:
        """Return the failure groups of a queue, or of all queues, the one that failed last first.

        Queues that cannot be read are left out of the groups of all queues. Raises QueueNotFound.
        """
        return await read_failures(await self._queues_of(queue))

    async def failure(self, fingerprint: str) -> list[FailureGroup]:
        """Return the failure groups with this fingerprint: one for each queue in which the failure occurs."""
        return await read_failures(await self._queues_of(None), fingerprint)

    async def with_failed_jobs(self, groups: Sequence[FailureGroup]) -> list[FailureGroup]:
        """Return the groups of which a job is failed now, and all groups of a queue with more than 200 failed jobs.

        The jobs of the other groups were retried, or removed after their end.
        """
        names = dict.fromkeys(group.queue for group in groups)
        failed = await read_groups_with_failed_jobs(await self._connections.readable_queues(names))
        return [
            group for group in groups if (found := failed.get(group.queue, set())) is None or group.fingerprint in found
        ]

    async def history(self, queue: str, job_id: str) -> list[HistoryEntry]:
        """Return the history of a job, the oldest entry first. Raises QueueNotFound and JobNotFound."""
        opened = await self.queue(queue)
        entries = await opened.get_job_history(job_id)
        # Entries are missing for a job that has not run, and for a job that does not exist.
        if not entries and await opened.get_job(job_id) is None:
            raise JobNotFound(f"queue {queue!r} has no job {job_id!r}; its record may have been removed")
        return entries

    async def _queues_of(self, queue: str | None) -> list[Queue[Any, Any]]:
        if queue is not None:
            return [await self.queue(queue)]
        return await self._connections.readable_queues(await self._connections.known_names())
