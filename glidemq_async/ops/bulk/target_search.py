"""Preview: find the jobs of an operation, and store which ones they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

import msgpack

from glidemq_async.durations import from_ms
from glidemq_async.errors import IncompatibleQueueError
from glidemq_async.filters.fields import Present
from glidemq_async.filters.filter import Filter
from glidemq_async.filters.plan import FilterPlan
from glidemq_async.ops.bulk.action import ActionCall
from glidemq_async.ops.connections import Connections
from glidemq_async.ops.errors import OperationRefused, QueueNotFound
from glidemq_async.ops.rows import JobRow, row_of
from glidemq_async.queues.finding import matching, page_of, tasks_of
from glidemq_async.queues.queue import Queue

MOST_JOBS: Final = 1_000_000
"""Maximum number of jobs of an operation."""
SAMPLE: Final = 5
CHUNK: Final = 500


class TargetSearch:
    """The search for the jobs of one operation. They are stored in chunks, each of one queue."""

    def __init__(self, connections: Connections, operation_id: str, action: ActionCall, wanted: Filter) -> None:
        self._connections = connections
        self._operations = connections.system.operations
        self._id = operation_id
        self._action = action
        self._plan = FilterPlan(wanted)
        self._met: set[tuple[str, str]] = set()
        self._chunk: list[str] = []
        self.cutoff_ms = 0
        self.size = 0
        """The number of stored jobs: the jobs that the action can change."""
        self.count = 0
        self.refused: Counter[str] = Counter()
        self.sample: list[JobRow] = []

    async def run(self) -> None:
        """Find and store the jobs. Raises OperationRefused for too many jobs, QueueNotFound."""
        # The cut-off comes first: a job that is added during the search is not part of the operation, wherever the
        # search meets it.
        self.cutoff_ms = await self._connections.system.reading.now()
        names = await self._connections.searched_queues(self._plan)
        if self._action.to:
            await self._connections.queue(self._action.to)
        for name in names:
            if name == self._action.to:
                continue  # a job cannot move to its own queue
            try:
                await self._search(await self._connections.queue(name))
            except (IncompatibleQueueError, QueueNotFound):
                continue

    async def _search(self, queue: Queue[Any, Any]) -> None:
        present = Present(from_ms(self.cutoff_ms), await tasks_of(queue, self._plan))
        async for ids in self._pages(queue):
            for job in await matching(queue, ids, self._plan, present):
                created = job.created_at
                if (queue.name, job.id) in self._met or (created is not None and created > present.now):
                    continue
                self._met.add((queue.name, job.id))
                self._count(row_of(job))
                if self._action.changes(job.state):
                    self._chunk.append(job.id)
                else:
                    self.refused[f"state {job.state}"] += 1
            await self._store(queue.name, CHUNK)
        await self._store(queue.name, 1)

    async def _pages(self, queue: Queue[Any, Any]) -> AsyncIterator[list[str]]:
        if self._plan.only_id is not None:
            yield [self._plan.only_id]
            return
        for state in self._plan.states:
            cursor = ""
            while True:
                cursor, ids, _ = await page_of(queue, state, cursor, self._plan)
                yield ids
                if not cursor:
                    break

    def _count(self, row: JobRow) -> None:
        self.count += 1
        if len(self.sample) < SAMPLE:
            self.sample.append(row)
        if self.count > MOST_JOBS:
            raise OperationRefused(
                f"more than {MOST_JOBS:,} jobs match; use a narrower filter, for example with queue: or added:"
            )

    async def _store(self, queue: str, least: int) -> None:
        """Store the found jobs if there are at least `least` of them."""
        while len(self._chunk) >= least:
            ids, self._chunk = self._chunk[:CHUNK], self._chunk[CHUNK:]
            await self._operations.add_targets(self._id, self.size, msgpack.packb([queue, ids]))
            self.size += len(ids)
