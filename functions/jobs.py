"""Typed calls of the operations of a user on one job: `jobs.lua`."""

from __future__ import annotations

from typing import NamedTuple

from glidemq_async.functions.calling import Calls, text, texts


class EndReply(NamedTuple):
    """Reply of a call that ends a job: its status.

    `rest` is "", or the base key of the queue with the plan of the job's flow. Then the outboxes of both queues must be
    relayed, so that the call reaches all jobs below this one.
    """

    code: str
    rest: str


class JobCalls(Calls):
    """Calls of the functions in `jobs.lua`."""

    __slots__ = ()

    async def remove(self, job_id: str) -> EndReply:
        """Remove a job. A running one loses its lease."""
        return _end_reply(await self._caller.once("removeJob", [job_id]))

    async def retry(self, job_id: str) -> str:
        """Start a completed or failed job again, with fresh attempts. Return the status."""
        # With a number, like all changes here. A copy of this call that arrives after the job has failed again would
        # otherwise start it once more.
        return text(await self._caller.once("retryJob", [job_id]))

    async def promote(self, job_id: str) -> str:
        """Promote a delayed job, so that it can start now. Return the status."""
        return text(await self._caller.once("promoteJob", [job_id]))

    async def revoke(self, job_id: str, reason: str = "") -> EndReply:
        """Revoke a job."""
        return _end_reply(await self._caller.once("revokeJob", [job_id, reason]))

    async def abandon(self, job_id: str, channel: str, reason: str) -> EndReply:
        """Cancel the wait of the client that added a job, and revoke the job unless others wait."""
        return _end_reply(await self._caller.once("abandonJob", [job_id, channel, reason]))


def _end_reply(reply: object) -> EndReply:
    code, rest = texts(reply)
    return EndReply(code, rest)
