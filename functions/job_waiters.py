"""Typed calls of the functions for clients that wait for the end of a job: `job_waiters.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from glidemq_async.functions.calling import Calls, Record, record, text

MOST_IDS = 500
"""Maximum number of jobs in one call for many jobs."""


class JobEnd(NamedTuple):
    """One job of `awaitJobs`: "waiting", "missing" or its final state; its result or error; the reason of a failure."""

    state: str
    payload: bytes
    reason: str


class JobWaiterCalls(Calls):
    """Calls of the functions in `job_waiters.lua`."""

    __slots__ = ()

    async def add(self, job_id: str, channel: str) -> tuple[str, Record]:
        """Request a message on a reply channel when a job ends. Return the state, and fields of an ended one."""
        # One call looks at the job and registers the channel, so the job cannot end in between. Without a number:
        # registering a channel twice has one effect.
        reply = cast("list[object]", await self._caller.call("awaitJob", [job_id, channel]))
        return text(reply[0]), record(reply[1]) if len(reply) > 1 else {}

    async def add_many(self, job_ids: Sequence[str], channel: str) -> list[JobEnd]:
        """Do what `add` does for at most MOST_IDS jobs in one call. Return fewer replies when they take too long."""
        rows = cast("list[list[bytes]]", await self._caller.call("awaitJobs", [channel, *job_ids]))
        return [JobEnd(state.decode(), payload, reason.decode(errors="replace")) for state, payload, reason in rows]

    async def remove_many(self, job_ids: Sequence[str], channel: str) -> None:
        """Cancel the requests of `add_many`."""
        done = 0
        while done < len(job_ids):
            asked = job_ids[done : done + MOST_IDS]
            done += cast("int", await self._caller.call("forgetReplies", [channel, *asked]))

    async def remove(self, job_id: str, channel: str) -> None:
        """Cancel the request of `add`."""
        await self._caller.call("forgetReply", [job_id, channel])

    async def confirm(self, channel: str, job_ids: Sequence[str]) -> None:
        """Confirm that a reply channel has received the ends of these jobs, so that their records need not stay."""
        await self._caller.call("confirmReplies", [channel, *job_ids])
