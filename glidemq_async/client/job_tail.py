"""Follows jobs for all listeners of one client: readers of their chunks, and watchers of their state.

A listener needs no connection. The server publishes a message for each change of a followed job, over the connection
that also receives the results of jobs. The listeners then read all changes with one call at a time. A message can be
lost, so each job is also read every few seconds, more often without a subscription.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from glidemq_async._internal.background_tasks import BackgroundTasks
from glidemq_async.client.shared_reads import SharedReads
from glidemq_async.errors import QueueClosed
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.streaming import ChunkEntry, ChunkRead
from glidemq_async.functions.watching import ReplyRead, UpdateRead
from glidemq_async.storage import Storage, Subscription

RECHECK_SECONDS: Final = 5.0
"""Interval at which a job is read, in case a message was lost."""
POLL_SECONDS: Final = 0.25
"""This interval while the subscription is not confirmed."""
KEPT_MAX: Final = 500
"""Maximum number of chunks that all readers of a stream share. A slower reader reads again from the server."""
KEPT_BYTES: Final = 1024 * 1024
"""Maximum size of these chunks."""
GOODBYE_SECONDS: Final = 1.0
"""Time limit for ending the subscriptions when the client closes."""

Position: TypeAlias = tuple[int, int]
"""The id of an entry: the number of the chunk, and its run."""

_log = logging.getLogger(__name__)


# A listener must not sleep through a change. It notes `count` before it reads, and `wait` returns immediately if the
# count has risen since. A message that arrives during the read, or before the subscription, therefore leads to another
# read.
class Changes:
    """Counts the changes of a job, and wakes the listeners that wait for the next one."""

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

    def add(self) -> None:
        """Count a change and wake all listeners."""
        self.count += 1
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seen: int) -> None:
        """Wait until the count is no longer `seen`."""
        while self.count == seen:
            await self._event.wait()


class RecentChunks:
    """The newest chunks of one stream without a gap, shared by all readers of this process."""

    # Readers have no buffers. Each has a position. A reader whose position is older than these chunks reads from the
    # server, without an effect on the others.
    def __init__(self) -> None:
        self._entries: list[ChunkEntry] = []
        self._ids: list[Position] = []
        self._start: Position = (0, 0)
        """The position before the first entry."""

    @property
    def last(self) -> int:
        """The number of the newest chunk, 0 without one."""
        return self._ids[-1][0] if self._ids else 0

    def after(self, position: Position) -> list[ChunkEntry]:
        """Return the chunks after a position, none if they are not here."""
        if self._ids and self._start <= position < self._ids[-1]:
            return self._entries[bisect_right(self._ids, position) :]
        return []

    def keep(self, after: Position, entries: Sequence[ChunkEntry]) -> None:
        """Add the chunks that a reader has read after a position."""
        if not entries or b"end" in entries[-1].fields:
            # An ended stream can begin again when its job is retried, so its end is not kept.
            self._entries, self._ids = [], []
            return
        if not self._ids or after > self._ids[-1]:
            self._entries, self._ids, self._start = [], [], after
        if after != (self._ids[-1] if self._ids else self._start):
            return  # older chunks, or chunks that another reader has added
        self._entries = [*self._entries, *entries]
        self._ids += [(entry.number, entry.run) for entry in entries]
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        size = 0
        for at in range(len(self._entries) - 1, -1, -1):
            size += sum(map(len, self._entries[at].fields.values()))
            if size > KEPT_BYTES or len(self._entries) - at > KEPT_MAX:
                self._start = self._ids[at]
                self._entries, self._ids = self._entries[at + 1 :], self._ids[at + 1 :]
                return


class ExpectedReply:
    """A reply for which a listener waits: its identity, and the recorded step, b"" until it is published."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.step = b""


class Feed:
    """One job with listeners in this process."""

    def __init__(self) -> None:
        self.listeners = 0
        self.chunks = Changes()
        self.updates = Changes()
        self.recent = RecentChunks()
        self.awaited: set[ExpectedReply] = set()
        self.confirmed = asyncio.Event()
        """Set while the server has confirmed the subscription."""
        self._timer: asyncio.TimerHandle | None = None
        self._subscription: Subscription | None = None

    def change(self) -> None:
        """Wake all listeners."""
        self.chunks.add()
        self.updates.add()

    async def open(self, storage: Storage, base: str, job_id: str) -> None:
        """Subscribe to the messages about the job."""
        self._schedule()
        self._subscription = await storage.subscribe(base, f"{base}:chunks:{job_id}", self._on_message, self._on_change)

    async def close(self) -> None:
        """Unsubscribe."""
        if self._timer is not None:
            self._timer.cancel()
        if self._subscription is not None:
            await self._subscription.close()

    def _on_message(self, message: bytes) -> None:
        # The number of the last chunk, "end", or "changed"; see functions/chunks.lua. Or a reply; see steps.lua.
        name, *reply = message.split(b"\x1f", 2)
        if len(reply) == 2:
            self._keep_reply(f"{name.decode()}\x1f{reply[0].decode()}", reply[1])
        elif message == b"changed":
            self.updates.add()
        elif not message.isdigit():
            self.change()
        elif int(message) > self.recent.last:
            self.chunks.add()

    def _keep_reply(self, identity: str, step: bytes) -> None:
        for one in self.awaited:
            if one.identity == identity:
                one.step = step
        self.updates.add()

    def _on_change(self, subscribed: bool) -> None:
        if subscribed:
            self.confirmed.set()
            self.change()  # messages before the confirmation are lost
        else:
            self.confirmed.clear()
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        seconds = RECHECK_SECONDS if self.confirmed.is_set() else POLL_SECONDS
        self._timer = asyncio.get_running_loop().call_later(seconds, self._recheck)

    def _recheck(self) -> None:
        self.change()
        self._schedule()


class JobTail:
    """All listeners of one client to the jobs of one queue."""

    def __init__(self, storage: Storage, functions: Functions) -> None:
        self._storage = storage
        self._base = functions.caller.base
        self._feeds: dict[str, Feed] = {}
        self._chunks = SharedReads[tuple[str, str], ChunkRead](functions.streaming.read, self._closed)
        self._updates = SharedReads[tuple[str, int], UpdateRead](functions.watching.read, self._closed)
        self._replies = SharedReads[tuple[str, str], ReplyRead](functions.watching.read_replies, self._closed)
        self._closing = BackgroundTasks(_note_failure)
        self._is_closed = False

    @asynccontextmanager
    async def listen(self, job_id: str) -> AsyncGenerator[Feed]:
        """Take part in the feed of a job. The last listener that leaves ends it."""
        self.refuse_closed()
        feed = self._feeds.get(job_id)
        if feed is None:
            feed = self._feeds[job_id] = Feed()
        feed.listeners += 1
        try:
            if feed.listeners == 1:
                await feed.open(self._storage, self._base, job_id)
            yield feed
        finally:
            feed.listeners -= 1
            if not feed.listeners:
                self._feeds.pop(job_id, None)
                # In the background, because a listener may leave by a cancellation.
                self._closing.start(feed.close())

    async def read_chunks(self, feed: Feed, job_id: str, after: Position) -> ChunkRead:
        """Return the chunks after a position, perhaps none yet. Readers at the same position share the call."""
        self.refuse_closed()
        known = feed.recent.after(after)
        if known:
            return ChunkRead("open", known)
        found = await self._chunks.read((job_id, f"{after[0]}-{after[1]}"))
        feed.recent.keep(after, found.entries)
        return found

    async def read_update(self, job_id: str, lines: int) -> UpdateRead:
        """Return the state of a job, and its log lines after these ones."""
        self.refuse_closed()
        return await self._updates.read((job_id, lines))

    async def read_reply(self, job_id: str, identity: str) -> ReplyRead:
        """Return the state of a job, and the reply of its run that is recorded with this identity."""
        self.refuse_closed()
        return await self._replies.read((job_id, identity))

    async def close(self) -> None:
        """End all listeners with QueueClosed."""
        self._is_closed = True
        for feed in list(self._feeds.values()):
            feed.change()
            self._closing.start(feed.close())
        await self._chunks.close()
        await self._updates.close()
        await self._replies.close()
        await self._closing.wait(GOODBYE_SECONDS)

    def refuse_closed(self) -> None:
        """Raise QueueClosed if the client is closed."""
        if self._is_closed:
            raise self._closed()

    @staticmethod
    def _closed() -> QueueClosed:
        return QueueClosed("the queue was closed while a job was followed; create a new Queue")


def _note_failure(error: BaseException) -> None:
    _log.debug("the end of a subscription failed: %s", error)
