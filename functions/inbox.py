"""Typed call of the function that adds the jobs of other queues: `inbox.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from glidemq_async.functions.calling import Arg, Calls, text

POSTED: Final = -1


class Delivery(NamedTuple):
    """A job for another queue. Its `token` makes repeated deliveries have one effect."""

    token: str
    id: bytes
    name: bytes
    data: bytes
    opts: bytes
    extra: bytes
    origin: bytes


class InboxCalls(Calls):
    """Calls of the functions in `inbox.lua`."""

    __slots__ = ()

    async def deliver(self, deliveries: Sequence[Delivery]) -> dict[int, str]:
        """Add at most 100 jobs that another queue posted, each token once. Return why jobs were not added, by position.

        The position `POSTED` is in the reply if the call has written to the outbox of its queue.
        """
        args: list[Arg] = [len(deliveries)]
        for delivery in deliveries:
            args += delivery
        # The number covers a repeated call of this process. The token of each delivery covers the other cases: a relay
        # that died before it deleted its entry, and two workers that relay at the same time.
        flat = cast("list[object]", await self._caller.once("deliverJobs", args))
        return {cast("int", flat[i]) - 1: text(flat[i + 1]) for i in range(0, len(flat), 2)}
