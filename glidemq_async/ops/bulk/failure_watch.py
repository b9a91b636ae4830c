"""Watches whether the jobs that an operation has restarted fail again."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, NamedTuple, cast

import msgpack

from glidemq_async.ops.connections import Connections
from glidemq_async.ops.errors import QueueNotFound
from glidemq_async.queues.internals import client_of
from glidemq_async.stored.record import place_of, whole

SAMPLE: Final = 200
"""Number of the last restarted jobs that are watched."""
LEAST: Final = 10
"""Number of restarted jobs that must have run before their failures count."""
PERIOD: Final = 0.2
"""Minimum time between two checks in seconds: a check reads as many records as a step does."""


class RestartedJob(NamedTuple):
    """A restarted job, and how often it had failed before."""

    queue: str
    id: str
    failures: int


class FailureWatch:
    """The last jobs that an operation has restarted. They are stored with the operation for its next runner."""

    def __init__(self, connections: Connections, share: float | None) -> None:
        self._connections = connections
        self._share = share
        self._restarted: list[RestartedJob] = []
        self._next = 0.0

    @property
    def packed(self) -> bytes:
        """The stored form, b"" if nothing is watched."""
        return b"" if self._share is None or not self._restarted else msgpack.packb(self._restarted)

    def restore(self, packed: bytes) -> None:
        """Continue with the jobs that an earlier runner has stored."""
        if packed:
            self._restarted = [
                RestartedJob(*row) for row in cast("list[tuple[str, str, int]]", msgpack.unpackb(packed))
            ]

    def note(self, jobs: Iterable[RestartedJob]) -> None:
        """Note restarted jobs."""
        if self._share is not None:
            self._restarted += jobs
            del self._restarted[:-SAMPLE]

    async def check(self) -> str | None:
        """Return the reason for which the operation must stop, None if it can continue."""
        if self._share is None or len(self._restarted) < LEAST or time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + PERIOD
        ended = failed = 0
        for queue in {one.queue for one in self._restarted}:
            queue_ended, queue_failed = await self._count([one for one in self._restarted if one.queue == queue])
            ended, failed = ended + queue_ended, failed + queue_failed
        if ended < LEAST or failed <= self._share * ended:
            return None
        return f"{failed} of the last {ended} restarted jobs that ran have failed again"

    async def _count(self, jobs: list[RestartedJob]) -> tuple[int, int]:
        """Return how many of these jobs of one queue have run, and how many of them have failed."""
        try:
            queue = await self._connections.queue(jobs[0].queue)
        except QueueNotFound:
            return 0, 0
        ended = failed = 0
        records = await client_of(queue).functions.reading.get_outlines([one.id for one in jobs])
        for record, job in zip(records, jobs, strict=True):
            # A job whose record is gone has completed: failed jobs are kept much longer.
            has_failed = b"place" in record and whole(record, b"failures") > job.failures
            is_over = b"place" not in record or place_of(record).state == "completed"
            failed += has_failed
            ended += has_failed or is_over
        return ended, failed
