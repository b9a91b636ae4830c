"""Moves the messages of a topic into the queue of a subscription. Every worker of the queue has a feeder."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from glidemq_async._internal import failpoints
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.functions.topics import TopicPosition
from glidemq_async.storage import Subscription
from glidemq_async.topics.feeding import FeedSource
from glidemq_async.worker.reports import Reports

POLL_SECONDS: Final = 1.5
"""Interval at which the topic is read, in case a message was lost. Shorter than the hold of a feeder."""
UNSUBSCRIBED_SECONDS: Final = 0.2
"""This interval while the subscription to the channel is not confirmed."""
OTHER_SECONDS: Final = 1.0
"""Interval at which a worker looks whether the feeder of another worker has died."""
CROWDED_SECONDS: Final = 0.02
"""First pause while too many jobs wait. Each further one is twice as long."""
LONGEST_CROWDED: Final = 0.5
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 10.0
MOST_ROWS: Final = 250


# Only one worker of a queue feeds it at a time, which the server decides for five seconds (feeds.lua). This only saves
# reads. Nothing depends on it: the call that adds the jobs of some messages also compares and moves the cursor, so a
# feeder that was slow, or whose call is repeated, adds nothing.
#
# `_position` is the cursor as this worker knows it. It is forgotten after each refusal and each error, and read again.
class Feeder:
    """Feeds the queue of one worker while no other worker feeds it."""

    def __init__(self, client: QueueClient, source: FeedSource, worker: str, reports: Reports) -> None:
        self._client = client
        self._source = source
        self._worker = worker
        self._reports = reports
        self._wakes = asyncio.Event()
        self._feeding = asyncio.Lock()
        self._position: TopicPosition | None = None
        self._fed_to: TopicPosition | None = None
        """The position at the end of the last call of `feed_all`."""
        self._room = 0
        self._epoch = 0
        self._is_holder = False
        self._is_subscribed = False
        self._crowded = CROWDED_SECONDS
        self._pause = FIRST_PAUSE

    async def run(self) -> None:
        """Feed until cancelled."""
        base = self._source.topic_calls.caller.base
        link: Subscription | None = None
        try:
            link = await self._client.storage.subscribe(base, f"{base}:published", self._on_message, self._on_link)
            while True:
                self._wakes.clear()
                pause = await self._feed_safely()
                # Not `wait_for`, which on Python 3.11 ignores a cancellation that comes together with the event.
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._wakes.wait()
        finally:
            if link is not None:
                await link.close()

    async def finish(self) -> None:
        """Pass the queue on to another worker, after `run` was cancelled."""
        if self._is_holder:
            self._is_holder = False
            await self._client.functions.feeds.close(self._worker)

    async def feed_all(self) -> bool:
        """Move all messages that the queue has room for.

        Return whether messages were moved since the last call of this method. If so, there may be more of them.
        """
        # `run` may have moved messages in between, and may have filled the queue. Then this call moves none, although
        # the topic has more.
        async with self._feeding:
            await self._feed()
            before, self._fed_to = self._fed_to, self._position
            return self._position != before

    def _on_message(self, message: bytes) -> None:
        del message
        if self._is_holder:
            self._wakes.set()

    def _on_link(self, up: bool) -> None:
        self._is_subscribed = up
        if up:
            self._wakes.set()

    async def _feed_safely(self) -> float:
        """Feed. Return the seconds until the next look at the topic."""
        try:
            async with self._feeding:
                _, pause = await self._feed()
        except Exception as error:  # noqa: BLE001 - a feed that fails once must not end feeding
            self._position = None
            self._reports.failed_try(error, self._pause)
            pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
            return pause
        self._pause = FIRST_PAUSE
        return pause

    async def _feed(self) -> tuple[bool, float]:
        """Move messages until the end of the topic, or until the queue is full.

        Return whether there were any, and the pause until the next look.
        """
        moved = False
        # The cursor of the last call is used once without asking for it.
        if self._position is None and not await self._open():
            return moved, OTHER_SECONDS
        while True:
            if self._room < min(MOST_ROWS, self._source.backlog) and not await self._open():
                return moved, OTHER_SECONDS
            if not self._room:
                self._crowded = min(2 * self._crowded, LONGEST_CROWDED)
                return moved, self._crowded
            self._crowded = CROWDED_SECONDS
            step = await self._move()
            if step is None:
                if not await self._open():
                    return moved, OTHER_SECONDS
                continue
            has_moved, is_end = step
            moved = moved or has_moved
            if is_end:
                # The hold of this worker ends unless it is renewed.
                if not has_moved and not await self._open():
                    return moved, OTHER_SECONDS
                return moved, POLL_SECONDS if self._is_subscribed else UNSUBSCRIBED_SECONDS

    async def _open(self) -> bool:
        """Become the feeder and read the cursor. Return False while another worker feeds."""
        feeds, base = self._client.functions.feeds, self._source.topic_calls.caller.base
        reply = await feeds.open(self._worker, base, None, self._source.backlog)
        if reply.status == "new":
            start = await self._source.join()
            reply = await feeds.open(self._worker, base, start, self._source.backlog)
        self._position, self._room, self._epoch = reply.position, reply.room, reply.epoch
        self._is_holder = reply.status == "ok"
        return self._is_holder

    async def _move(self) -> tuple[bool, bool] | None:
        """Move the next messages. Return whether there were any, and whether the end is reached; None: open again."""
        source, position = self._source, self._position
        if position is None:
            return None
        found = await source.topic_calls.topics.read(
            source.name, position, source.patterns, min(self._room, MOST_ROWS), self._epoch
        )
        if found is None:
            await source.join()
            return False, False
        if found.end == position and not found.lost:
            return False, True
        jobs = [(TopicPosition(one.entry, one.number), source.request(self._client, one)) for one in found.messages]
        if failpoints.armed:
            failpoints.hit("feed.before_add")
        reply = await self._client.functions.feeds.add(
            self._worker, position, found.end, found.lost, source.backlog, jobs
        )
        if failpoints.armed:
            failpoints.hit("feed.after_add")
        self._position, self._room, self._epoch = reply.position, reply.room, reply.epoch
        if reply.position is None:
            return None
        return True, reply.position == found.end and found.end.number >= found.total
