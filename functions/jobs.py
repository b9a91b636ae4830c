"""Typed calls of the operations of a user on one job: `jobs.lua`."""

from __future__ import annotations

from glidemq_async.functions.calling import Calls, text


class JobCalls(Calls):
    """Calls of the functions in `jobs.lua`."""

    __slots__ = ()

    async def remove(self, job_id: str) -> str:
        """Remove a job. A running one loses its lease. Return the status."""
        return text(await self._caller.once("removeJob", [job_id]))

    async def retry(self, job_id: str) -> str:
        """Start a completed or failed job again, with fresh attempts. Return the status."""
        # With a number, like all changes here. A copy of this call that arrives after the job has failed again would
        # otherwise start it once more.
        return text(await self._caller.once("retryJob", [job_id]))

    async def promote(self, job_id: str) -> str:
        """Let a delayed job start now. Return the status."""
        return text(await self._caller.once("promoteJob", [job_id]))

    async def revoke(self, job_id: str, reason: str = "") -> str:
        """Revoke a job. Return the status."""
        return text(await self._caller.once("revokeJob", [job_id, reason]))

    async def abandon(self, job_id: str, channel: str, reason: str) -> str:
        """Cancel the wait of the client that added a job, and revoke the job unless others wait. Return the status."""
        return text(await self._caller.once("abandonJob", [job_id, channel, reason]))
