"""Groups of failures over all queues, for operators."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from glidemq_async.ops.connections import Connections
from glidemq_async.queues.failures import FailureGroup
from glidemq_async.queues.queue import Queue

__all__ = ["FailureGroup", "RecentFailures", "read_failures"]

MOST_GROUPS: Final = 20
"""Number of groups in an overview."""
MOST_FAILED_JOBS: Final = 200
"""Maximum number of failed jobs of a queue that are read to find the groups with failed jobs."""
MOST_QUEUES: Final = 50
"""Maximum number of queues whose groups are read for an overview."""
KEPT_SECONDS: Final = 5.0
"""Seconds for which the groups of an overview are used again."""


async def read_failures(queues: Sequence[Queue[Any, Any]], fingerprint: str | None = None) -> list[FailureGroup]:
    """Return the groups of these queues, the one that failed last first; with a fingerprint only its groups."""
    found = [group for queue in queues for group in await queue.get_failure_groups()]
    if fingerprint is not None:
        found = [group for group in found if group.fingerprint == fingerprint]
    return sorted(found, key=lambda group: group.last_at, reverse=True)


async def read_groups_with_failed_jobs(queues: Sequence[Queue[Any, Any]]) -> dict[str, set[str | None] | None]:
    """Return the fingerprints of the groups of the failed jobs of each queue; None for a queue with too many jobs."""
    found: dict[str, set[str | None] | None] = {}
    for queue in queues:
        jobs = await queue.get_jobs("failed", 0, MOST_FAILED_JOBS, with_data=False)
        found[queue.name] = {job.failure_group for job in jobs} if len(jobs) <= MOST_FAILED_JOBS else None
    return found


class RecentFailures:
    """The groups that failed last, for overviews. All viewers share one reading."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._read_at = 0.0
        self._names: list[str] = []
        self._groups: tuple[FailureGroup, ...] = ()

    async def read(self, names: Sequence[str]) -> tuple[FailureGroup, ...]:
        """Return the newest groups of the first 50 of these queues. They may be 5 seconds old."""
        wanted = [*names[:MOST_QUEUES]]
        # A queue that begins to fail is in the next overview.
        if time.monotonic() - self._read_at > KEPT_SECONDS or not set(wanted) <= set(self._names):
            groups = await read_failures(await self._connections.readable_queues(wanted))
            self._read_at, self._names, self._groups = time.monotonic(), wanted, tuple(groups[:MOST_GROUPS])
        return tuple(group for group in self._groups if group.queue in wanted)
