"""Groups of failures: which errors the jobs of a queue end with, since when, and by which versions of the code."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from glidemq_async._internal.generics import Data, Result
from glidemq_async.durations import from_ms
from glidemq_async.functions.failure_groups import FailureGroupRow
from glidemq_async.queues.base import QueuePart

_MEANINGS: Final = {
    "stalled": "the lease of a run was lost, because its worker died or was cut off from the server",
    "expired": "no worker started the job within its ttl",
    "undelivered": "workers claimed the job, but never received it",
    "malformed": "the record, the options or the data of the job cannot be decoded",
}
"""The messages of failures for which the server stores only the cause."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """The failed attempts of one task that have the same error and place.

    - `fingerprint` identifies the group. The filter `group:<fingerprint>` finds the jobs whose last failure is in it.
    - `queue` is the name of the queue, `name` the name of the job or task. `error_type` is the name of the exception,
      or the cause of a failure that the server has found: "stalled", "expired", "undelivered", "malformed" or
      "child_failed".
    - `place` is the innermost frame outside of installed packages, the standard library and this library, as
      "<file>:<function>:<line>". It is "" if there is none.
    - `message` and `sample_job_id` are the message of a recent failure, cut to 500 bytes, and its job.
    - `count` is the number of failed attempts between `first_at` and `last_at`.
    - `trend` has the failed attempts in each of the last 24 hours. Hours are in UTC, and the last item is the
      present hour.
    - `versions` has the number of failed attempts for each known version of the workers, for the 8 versions that failed
      last. `began_with` is the version of the first failed attempt, None if it is unknown.
    """

    fingerprint: str
    queue: str
    name: str
    error_type: str
    place: str
    message: str
    count: int
    first_at: datetime
    last_at: datetime
    trend: tuple[int, ...]
    versions: dict[str, int]
    sample_job_id: str
    began_with: str | None


class Failures(QueuePart[Data, Result]):
    """The methods of Queue for groups of failures."""

    async def get_failure_groups(self) -> list[FailureGroup]:
        """Return the groups of failed attempts, the one that failed last first.

        The queue keeps the 200 groups that failed last. An attempt is counted when it fails, so retries and removed
        jobs count too. Revoked jobs do not count.
        """
        await self.connect()
        rows = await self._client.functions.failure_groups.list()
        return [_group(self._client.queue, row) for row in rows]


def _group(queue: str, row: FailureGroupRow) -> FailureGroup:
    return FailureGroup(
        fingerprint=row.fingerprint,
        queue=queue,
        name=row.name,
        error_type=row.error_type,
        place=row.place,
        message=_MEANINGS.get(row.message, row.message) if row.message == row.error_type else row.message,
        count=row.count,
        first_at=from_ms(row.first),
        last_at=from_ms(row.last),
        trend=row.trend,
        versions={version: count for version, count in row.versions.items() if version},
        sample_job_id=row.sample,
        began_with=row.began or None,
    )
