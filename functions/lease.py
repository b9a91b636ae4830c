"""Typed calls of the functions for leases and stopping runs: `lease.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from glidemq_async.functions.calling import Arg, Calls, texts


class Held(NamedTuple):
    """A lease to renew. `plain_since`: when the run of a plain job began (server ms), "" for any other job."""

    id: str
    entry: str
    plain_since: int | str = ""


class LeaseCalls(Calls):
    """Calls of the functions in `lease.lua`."""

    __slots__ = ()

    async def renew(
        self,
        consumer: str,
        info: bytes,
        held: Sequence[Held],
        timeout: float,
        *,
        answered: int = 0,
        in_transit: int = 0,
    ) -> tuple[list[str], list[str]]:
        """Renew leases. Return the lost entries, and the entries of revoked jobs.

        `answered` is the number of the consumer's last settle call that has a reply: a server that knows this call need
        not verify who owns each entry. 0 requests the verification. `in_transit` is the number of the call whose reply
        is on its way, 0 for none. The server renews the jobs that this call has claimed, too.
        """
        # Without a number: a renewal never creates a lease, it only verifies and extends the leases of this consumer. A
        # repeated or delayed one has no second effect, so renewals need not wait for each other.
        args: list[Arg] = [consumer, info, answered, in_transit]
        for one in held:
            args += one
        lost, revoked = cast("list[object]", await self._caller.call("renewLeases", args, timeout=timeout))
        return texts(lost), texts(revoked)

    async def end_runs(self, consumer: str, entries: Sequence[str]) -> int:
        """Report that runs of removed jobs have ended. Return how many of them still held their key or slot."""
        # A second report finds the run gone and returns 0, so the call needs no number.
        return cast("int", await self._caller.call("endRuns", [consumer, *entries]))

    async def describe(self, consumer: str, info: bytes) -> None:
        """Replace the description of a worker that is present."""
        await self._caller.call("describeWorker", [consumer, info])

    async def tell(self, consumer: str, command: str) -> int:
        """Send a command to a worker. Return the number of receivers; -1 if this client may not publish."""
        return cast("int", await self._caller.call("tellWorker", [consumer, command]))
