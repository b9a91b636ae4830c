"""Removing and retrying jobs, one or many, in bounded steps."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from glidemq_async.generics import Data, Result
from glidemq_async.inspection import Inspection
from glidemq_async.job import Job
from glidemq_async.keys import check_id
from glidemq_async.option_checks import whole_number
from glidemq_async.record import FINAL


class Cleaning(Inspection[Data, Result]):
    """The methods of Queue that remove jobs or start them anew."""

    async def revoke(self, job_id: str) -> bool:
        """Make sure a job does not run to its end; see `Job.revoke`. Raises JobNotFound, JobStateError."""
        check_id("job_id", job_id)
        await self.connect()
        return await Job[Data, Result](self._client, job_id, "").revoke()

    async def remove(self, job_id: str) -> bool:
        """Delete a job; returns whether there was one."""
        check_id("job_id", job_id)
        await self.connect()
        return await self._client.functions.change_job("removeJob", job_id) == "ok"

    async def update_result_ttl(self, job_id: str, ttl: float | timedelta | None) -> None:
        """Change how long an ended job's result stays; see `Job.update_result_ttl`.

        Raises JobNotFound, JobStateError, TypeError or ValueError for a bad `ttl`.
        """
        check_id("job_id", job_id)
        await self.connect()
        await Job[Data, Result](self._client, job_id, "").update_result_ttl(ttl)

    async def retry_jobs(self, state: Literal["failed", "completed"] = "failed", count: int | None = None) -> int:
        """Run ended jobs again, the newest first, at most `count` of those there now; returns how many."""
        if state not in FINAL:
            raise ValueError(f"only ended jobs can be retried: state must be failed or completed, got {state!r}")
        if count is not None:
            whole_number("count", count, least=0)
        limit = count if count is not None else (await self.get_job_counts())[state]
        ids: list[str] = []
        async for page in self._pages(state):
            ids += page[: limit - len(ids)]
            if len(ids) >= limit:
                break
        words = [await self._client.functions.change_job("retryJob", job_id) for job_id in ids]
        return words.count("ok")
