"""Typed calls of the functions that move messages into the queue of a subscription: `feeds.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.calling import Arg, Calls, text
from glidemq_async.functions.topics import TopicPosition


class FeedReply(NamedTuple):
    """Reply of `openFeed` and `feedJobs`. `position` is None unless the status is "ok"."""

    status: str
    position: TopicPosition | None
    room: int
    epoch: int = 0
    """The number of replays of the subscription."""


class FeedState(NamedTuple):
    """Reply of `readFeed`."""

    topic: str
    """The base key of the topic."""
    position: TopicPosition
    lost: int
    """The number of messages that were trimmed before they were read."""
    fed: int
    """The number of jobs that were added."""


class FeedCalls(Calls):
    """Calls of the functions in `feeds.lua`, with the base key of a queue."""

    __slots__ = ()

    async def open(self, holder: str, topic: str, start: TopicPosition | None, most: int) -> FeedReply:
        """Become the worker that feeds the queue. `start` is the position of a new subscription, None if unknown.

        `most` is the number of waiting jobs above which the queue takes no messages.
        """
        # Without a number: a repeated call stores the same holder, and the cursor only if there is none.
        position = "" if start is None else start.stored
        return _reply(await self._caller.call("openFeed", [holder, topic, position, most]))

    async def add(
        self,
        holder: str,
        after: TopicPosition,
        end: TopicPosition,
        lost: int,
        most: int,
        jobs: Sequence[tuple[TopicPosition, AddRequest]],
    ) -> FeedReply:
        """Add jobs and move the cursor from `after` to `end`. The reply has the position that was reached."""
        places = ",".join([place.stored for place, _ in jobs])
        args: list[Arg] = [holder, after.stored, end.stored, lost, most, places, len(jobs)]
        for _, job in jobs:
            args += job
        if jobs:
            args.append(self._caller.incarnation)
        return _reply(await self._caller.once("feedJobs", args))

    async def close(self, holder: str) -> None:
        """Return the lease of the feeder, so that another worker can feed the queue."""
        await self._caller.call("closeFeed", [holder])

    async def move(self, position: TopicPosition, epoch: int) -> bool:
        """Continue from another position. Return False if the queue has no cursor yet, or after a later replay."""
        return text(await self._caller.once("moveFeed", [position.stored, epoch])) == "ok"

    async def read(self) -> FeedState | None:
        """Return the state of the feed, None if the queue has none."""
        reply = cast("list[object]", await self._caller.read("readFeed"))
        if not reply:
            return None
        topic, position, lost, fed = reply
        return FeedState(text(topic), TopicPosition.parse(text(position)), cast("int", lost), cast("int", fed))


def _reply(reply: object) -> FeedReply:
    status, position, room, epoch = cast("list[object]", reply)
    found = text(position)
    return FeedReply(text(status), TopicPosition.parse(found) if found else None, cast("int", room), cast("int", epoch))
