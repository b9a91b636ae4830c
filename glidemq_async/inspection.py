"""Looking at a queue: its jobs by state, counts, logs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, cast

from glidemq_async.generics import Data, Result
from glidemq_async.job import Job
from glidemq_async.keys import check_id
from glidemq_async.queue_part import QueuePart
from glidemq_async.record import FINAL, STATES, State

PAGE: Final = 500


class Inspection(QueuePart[Data, Result]):
    """The methods of Queue that look at it and change nothing."""

    async def get_job(self, job_id: str) -> Job[Data, Result] | None:
        """Return a job, None if there is none with this id."""
        check_id("job_id", job_id)
        await self.connect()
        record = (await self._client.functions.get_records([job_id]))[0]
        return Job[Data, Result].from_record(self._client, job_id, record) if b"place" in record else None

    async def get_jobs(
        self, state: State, start: int = 0, end: int = 99, *, with_data: bool = True
    ) -> list[Job[Data, Result]]:
        """Return the jobs in a state from position `start` to `end`, both included.

        Waiting and delayed jobs come in the order in which they will start, ended ones newest first. Reading far
        into a long queue walks there; use `iter_jobs` for all. `with_data=False` returns jobs without payload.
        """
        if start < 0 or end < start:
            raise ValueError(f"start and end must be 0 <= start <= end, got {start} and {end}")
        found: list[Job[Data, Result]] = []
        position = 0
        async for ids in self._pages(state):
            wanted = ids[max(0, start - position) : end + 1 - position]
            found += await self._read(wanted, with_data)
            position += len(ids)
            if position > end:
                break
        return found

    async def iter_jobs(self, state: State) -> AsyncIterator[Job[Data, Result]]:
        """Iterate over the jobs in a state. Jobs that change state meanwhile may be missed or met twice."""
        async for ids in self._pages(state):
            for job in await self._read(ids, True):
                yield job

    async def _pages(self, state: State) -> AsyncIterator[list[str]]:
        if state not in STATES:
            raise ValueError(f"state must be one of {', '.join(STATES)}, got {state!r}")
        await self.connect()
        cursor = ""
        while True:
            cursor, ids = await self._client.functions.list_jobs(state, cursor, PAGE)
            yield ids
            if not cursor:
                return

    async def _read(self, ids: Sequence[str], with_data: bool) -> list[Job[Data, Result]]:
        if not ids:
            return []
        records = await self._client.functions.get_records(ids)
        jobs: list[Job[Data, Result]] = []
        for job_id, record in zip(ids, records, strict=True):
            if b"place" not in record:
                continue
            if not with_data:
                record[b"data"] = self._client.encode(None, "data")
            jobs.append(Job[Data, Result].from_record(self._client, job_id, record))
        return jobs

    async def get_job_counts(self) -> dict[State, int]:
        """Return the number of jobs in each state, computed from the stored structures in one instant."""
        await self.connect()
        return cast("dict[State, int]", await self._client.functions.count_jobs())

    async def count(self) -> int:
        """Return the number of jobs that have not started or wait for another attempt, in whatever state they wait."""
        counts = await self.get_job_counts()
        return sum(number for state, number in counts.items() if state not in {"active", *FINAL})

    async def get_job_logs(self, job_id: str, start: int = 0, end: int = -1) -> list[str]:
        """Return log lines of a job from `start` to `end`, both included; negative positions count from the end."""
        check_id("job_id", job_id)
        await self.connect()
        _, lines = await self._client.functions.get_logs(job_id, start, end)
        return lines
