"""Relay the outbox of a queue: read its entries, add the jobs to their queues, and delete the delivered entries.

The relay may run at any time and in any process, because the targets refuse entries that they have already received
(functions/inbox.lua).
"""

from __future__ import annotations

from typing import Final

from glidemq_async._internal import failpoints
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import GlideMQError
from glidemq_async.functions.inbox import Delivery
from glidemq_async.functions.outbox import Posted

_NONE: Final[list[str]] = []


class Outbox:
    """The outbox of one queue. `holder` identifies the process that relays it."""

    def __init__(self, client: QueueClient, holder: str) -> None:
        self._client = client
        self._holder = holder
        self._targets: dict[str, QueueClient] = {}

    async def relay(self) -> None:
        """Deliver all entries in bounded steps. Do nothing while another holder relays.

        Entries that cannot be delivered stay. After all other entries were delivered, the first error is raised.
        """
        # An entry is deleted only after its delivery was acknowledged, so a crash at any point leaves it in the outbox
        # and it is delivered again. The target recognizes its token and refuses it. The delivered entries are deleted
        # by the call that reads the next ones, which saves a call per step. A target that failed once is skipped for
        # the rest of the pass: its entries stay, and do not delay the jobs for other queues.
        failed: dict[str, GlideMQError] = {}
        after, done = "", _NONE
        while True:
            after, posted = await self._client.functions.outbox.relay(self._holder, after, done)
            if not posted:
                break
            done = await self._deliver(posted, failed)
        for error in failed.values():
            raise error

    async def _deliver(self, posted: list[Posted], failed: dict[str, GlideMQError]) -> list[str]:
        """Deliver one step and return the delivered entries. Skip targets that have already failed in this pass."""
        done: list[str] = []
        for to in dict.fromkeys(one.to for one in posted):
            if to in failed:
                continue
            mine = [one for one in posted if one.to == to]
            try:
                await self._deliver_to(to, mine)
            except GlideMQError as error:
                failed[to] = error
            else:
                done += [one.entry for one in mine]
        return done

    async def _deliver_to(self, to: str, posted: list[Posted]) -> None:
        target = self._targets.get(to)
        if target is None:
            target = self._client.at(to)
            await target.open()
            self._targets[to] = target
        # The id is derived from the entry, so the target recognizes a repeated delivery from any relay.
        source = self._client.keys.base
        deliveries = [Delivery(f"{source}/{one.entry}", *one[2:]) for one in posted]
        if failpoints.armed:
            failpoints.hit("relay.before_deliver")
        await target.functions.inbox.deliver(deliveries)
        if failpoints.armed:
            failpoints.hit("relay.after_deliver")
