"""Relay the outbox of a queue: read its entries, add the jobs to their queues, and delete the delivered entries.

The relay may run at any time and in any process, because the targets refuse entries that they have already received
(functions/inbox.lua).
"""

from __future__ import annotations

from typing import Final

from glidemq_async._internal import failpoints
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import GlideMQError
from glidemq_async.functions.inbox import POSTED, Delivery
from glidemq_async.functions.outbox import Posted

_NONE: Final[list[str]] = []


class Outbox:
    """The outbox of one queue. `holder` identifies the process that relays it."""

    def __init__(self, client: QueueClient, holder: str) -> None:
        self._client = client
        self._holder = holder
        self._targets: dict[str, QueueClient] = {client.keys.base: client}
        self._next: list[QueueClient] = []

    async def relay(self) -> None:
        """Deliver all entries in bounded steps. Do nothing while another holder relays.

        Entries that cannot be delivered stay. After all other entries were delivered, the first error is raised.
        """
        # An entry is deleted only after its delivery was acknowledged, so a crash at any point leaves it in the outbox
        # and it is delivered again. The target recognizes its token and refuses it. The delivered entries are deleted
        # by the call that reads the next ones, which saves a call per step. A target that failed once is skipped for
        # the rest of the pass: its entries stay, and do not delay the jobs for other queues.
        #
        # A delivery for a flow may write to the outbox of its target, for example the end of a parent that another
        # queue has to know. No worker of that queue need be awake, so this pass relays these outboxes too.
        failed: dict[str, GlideMQError] = {}
        self._next = [self._client]
        while self._next:
            await self._relay_one(self._next.pop(0), failed)
        for error in failed.values():
            raise error

    async def _relay_one(self, source: QueueClient, failed: dict[str, GlideMQError]) -> None:
        after, done = "", _NONE
        while True:
            after, posted, has_work = await source.functions.outbox.relay(self._holder, after, done)
            if not posted and not has_work:
                break
            done = await self._deliver(source, posted, failed)
            if has_work:
                await source.functions.flows.advance()

    async def _deliver(self, source: QueueClient, posted: list[Posted], failed: dict[str, GlideMQError]) -> list[str]:
        """Deliver one step and return the delivered entries. Skip targets that have already failed in this pass."""
        done: list[str] = []
        for to in dict.fromkeys(one.to for one in posted):
            if to in failed:
                continue
            mine = [one for one in posted if one.to == to]
            try:
                await self._deliver_to(source, to, mine)
            except GlideMQError as error:
                failed[to] = error
            else:
                done += [one.entry for one in mine]
        return done

    async def _deliver_to(self, source: QueueClient, to: str, posted: list[Posted]) -> None:
        target = self._targets.get(to)
        if target is None:
            target = self._client.at(to)
            await target.open()
            self._targets[to] = target
        # The id is derived from the entry, so the target recognizes a repeated delivery from any relay.
        deliveries = [Delivery(f"{source.keys.base}/{one.entry}", *one[2:]) for one in posted]
        if failpoints.armed:
            failpoints.hit("relay.before_deliver")
        reply = await target.functions.inbox.deliver(deliveries)
        if failpoints.armed:
            failpoints.hit("relay.after_deliver")
        if POSTED in reply and target not in self._next:
            self._next.append(target)
