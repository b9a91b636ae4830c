"""Relays what a queue has posted to others: reads its outbox, adds to the targets, takes out what was delivered.

Safe at any time and from anywhere: targets refuse what they were given before (functions/inbox.lua).
"""

from __future__ import annotations

from typing import Final

from glidemq_async._internal import failpoints
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import GlideMQError
from glidemq_async.functions.callers import Delivery, Posted

_NONE: Final[list[str]] = []


class Outbox:
    """The outbox of one queue, relayed by one holder, who is told from others by name."""

    def __init__(self, client: QueueClient, holder: str) -> None:
        self._client = client
        self._holder = holder
        self._targets: dict[str, QueueClient] = {}

    async def relay(self) -> None:
        """Deliver what is there, in bounded steps; nothing while another holder relays.

        What cannot be delivered stays. Raises the first error then, after everything else was delivered.
        """
        failed: dict[str, GlideMQError] = {}
        after, done = "", _NONE
        while True:
            after, posted = await self._client.functions.relay_outbox(self._holder, after, done)
            if not posted:
                break
            done = await self._deliver(posted, failed)
        for error in failed.values():
            raise error

    async def _deliver(self, posted: list[Posted], failed: dict[str, GlideMQError]) -> list[str]:
        """Deliver a step; answers the entries that arrived. A target that failed gets nothing more in this pass."""
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
        # Jobs of their own names: the same entry is known again, whoever relays it.
        source = self._client.keys.base
        deliveries = [Delivery(f"{source}/{one.entry}", *one[2:]) for one in posted]
        if failpoints.armed:
            failpoints.hit("relay.before_deliver")
        await target.functions.deliver_jobs(deliveries)
        if failpoints.armed:
            failpoints.hit("relay.after_deliver")
