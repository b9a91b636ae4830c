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

STEPS_OF_WORK: Final = 16
"""The number of steps of work that are done before the messages which follow from them are delivered."""
_NONE: Final[list[str]] = []


class Outbox:
    """The outbox of one queue.

    `holder` identifies the process that relays it, so that one process does this at a time. Without a holder, all
    entries that exist when `relay` is called are delivered when it returns, even if another process relays at the same
    time.
    """

    def __init__(self, client: QueueClient, holder: str = "") -> None:
        self._client = client
        self._holder = holder
        self._targets: dict[str, QueueClient] = {client.keys.base: client}
        self._next: list[QueueClient] = []
        self._visited: list[QueueClient] = []

    async def relay(self, also: str = "") -> None:
        """Do the work of flows, and deliver all entries in bounded steps. Do nothing while another holder relays.

        `also` is the base key of another queue, whose outbox is relayed in any case.

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
        if also and also != self._client.keys.base:
            self._next.append(await self._target(also))
        self._visited = []
        while self._next:
            self._visited.append(self._next[0])
            await self._relay_one(self._next.pop(0), failed)
        for error in failed.values():
            raise error

    async def _relay_one(self, source: QueueClient, failed: dict[str, GlideMQError]) -> None:
        # Two relays at the same time are safe. Each delivers the entries in their order, and the target refuses what it
        # has. So an entry that another relay has read, and not yet delivered, is delivered by this one.
        after, done, until = "", _NONE, ""
        while True:
            after, posted, has_work, newest = await source.functions.outbox.relay(self._holder, after, done)
            if not posted and not has_work:
                break
            done = await self._deliver(source, posted, failed)
            if has_work:
                await self._advance(source)
                continue
            # The work of flows is done, and its messages are in the outbox. Later ones are left to the workers.
            until = until or newest
            if until and _position(after) >= _position(until):
                await source.functions.outbox.relay(self._holder, after, done)
                break

    async def _advance(self, source: QueueClient) -> None:
        for _ in range(STEPS_OF_WORK):
            if not await source.functions.flows.advance():
                break

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

    async def _target(self, to: str) -> QueueClient:
        target = self._targets.get(to)
        if target is None:
            target = self._client.at(to)
            await target.open()
            self._targets[to] = target
        return target

    async def _deliver_to(self, source: QueueClient, to: str, posted: list[Posted]) -> None:
        target = await self._target(to)
        # The id is derived from the entry, so the target recognizes a repeated delivery from any relay.
        deliveries = [Delivery(f"{source.keys.base}/{one.entry}", *one[2:]) for one in posted]
        if failpoints.armed:
            failpoints.hit("relay.before_deliver")
        reply = await target.functions.inbox.deliver(deliveries)
        if failpoints.armed:
            failpoints.hit("relay.after_deliver")
        # Without a holder, another relay may have delivered these entries before, and not yet what followed from them.
        is_first = not self._holder and target not in self._visited
        if (POSTED in reply or is_first) and target not in self._next:
            self._next.append(target)


async def reach_descendants(client: QueueClient, rest: str) -> None:
    """Cancel all jobs of flows that an ended job of this queue leaves without a parent, in whichever queues they are.

    `rest` is in the reply of the call that has ended the job. Raises the error of a queue that cannot be reached.
    """
    # A worker of this queue may have delivered the end of the job already, and not yet what follows from it. So the
    # queue with the plan of the flow is relayed in any case.
    if rest:
        await Outbox(client).relay(also=rest)


def _position(entry: str) -> tuple[int, int]:
    """Return the id of a stream entry as a value with the order of the entries."""
    ms, _, sequence = entry.partition("-")
    return int(ms), int(sequence)
