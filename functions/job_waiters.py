"""Typed calls of the functions for clients that wait for the end of a job: `job_waiters.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from glidemq_async.functions.calling import Calls, Record, record, text


class JobWaiterCalls(Calls):
    """Calls of the functions in `job_waiters.lua`."""

    __slots__ = ()

    async def add(self, job_id: str, channel: str) -> tuple[str, Record]:
        """Request a message on a reply channel when a job ends. Return the state, and the record if it has ended."""
        # One call looks at the job and registers the channel, so the job cannot end in between. Without a number:
        # registering a channel twice has one effect.
        reply = cast("list[object]", await self._caller.call("awaitJob", [job_id, channel]))
        return text(reply[0]), record(reply[1]) if len(reply) > 1 else {}

    async def remove(self, job_id: str, channel: str) -> None:
        """Cancel the request of `add`."""
        await self._caller.call("forgetReply", [job_id, channel])

    async def confirm(self, channel: str, job_ids: Sequence[str]) -> None:
        """Confirm that a reply channel has received the ends of these jobs, so that their records need not stay."""
        await self._caller.call("confirmReplies", [channel, *job_ids])
