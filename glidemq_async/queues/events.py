"""The lifecycle events of a queue as an async iterator with a resumable position.

How events are stored is told in functions/events.lua; the catalogue is in docs/events.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Final, Literal, Protocol, Self, TypeAlias, cast

from glidemq_async._internal.blocking import BlockingIterable
from glidemq_async._internal.loops import refuse_elsewhere
from glidemq_async.client.queue_client import DEFAULT_PREFIX, QueueClient
from glidemq_async.durations import from_ms
from glidemq_async.errors import QueueClosed
from glidemq_async.storage import Storage, StreamEntry

EventKind: TypeAlias = Literal[
    "added",
    "delayed",
    "waiting",
    "active",
    "progress",
    "updated",
    "completed",
    "failed",
    "dead-lettered",
    "retrying",
    "returned",
    "stalled",
    "revoking",
    "removed",
    "dropped",
    "limited",
    "changed",
    "duplicate",
    "skipped",
    "paused",
    "resumed",
    "key-paused",
    "key-resumed",
    "drained",
    "cleaned",
    "written",
    "obliterated",
]
#: The kinds whose stored form has a detail after each id, as in functions/events.lua.
WITH_DETAIL: Final = frozenset(
    {
        "added",
        "failed",
        "dead-lettered",
        "retrying",
        "stalled",
        "waiting",
        "removed",
        "dropped",
        "limited",
        "changed",
        "duplicate",
        "skipped",
        "key-paused",
        "key-resumed",
        "drained",
        "cleaned",
        "written",
        "obliterated",
    }
)

COUNT: Final = 200
"""Entries of one read; an entry holds all events of one call."""
BLOCK_SECONDS: Final = 2.0
"""How long a read waits for news before it is made again: the server pushes what comes, this bounds a lost link."""
SEP: Final = "\x1f"
#: Between the name and the key of a keyed job that was added.
KEY_SEP: Final = "\x1e"
# The number of the next event is n, or _ANY when nobody knows. After an obliteration it is _OVER - n: that of a new
# queue or, if jobs came in between and it goes on, n.
_ANY: Final = -1
_OVER: Final = -2


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """Something that happened to a job or to the queue.

    `detail` is the job's name (added), the reason (failed), the queue it goes to (dead-lettered), "<delay ms> <reason>"
    (retrying), the number of stalls (stalled), how it came (waiting: "", "promoted", "retried", "replayed"), the state
    it was in (removed; "replaced" when a later add took its place), the milliseconds of a limit (limited, key-paused,
    whose `job_id` is the key), what changed (changed: "priority 5", "delay 500"), the deduplication id (duplicate),
    which slots of the scheduler `job_id` and why (skipped), "<state> <jobs> <write id>" of a write in bulk that ended
    (written), or how many jobs went (drained, cleaned, obliterated).
    `job_id` is "" where the queue is meant. `position` is where to resume after this event. `key` is the ordering key
    of a job that was added with one.
    """

    kind: EventKind
    job_id: str
    at: datetime
    detail: str
    position: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class EventGap:
    """Events that were gone before they were read: trimmed, and then `missed` says how many, or obliterated.

    After an obliteration nobody knows how many there were: `missed` is None. What follows are the events of the next
    queue of the same name.
    """

    missed: int | None
    position: str


class SyncQueueEvents(Protocol):
    """`events.sync`: what QueueEvents awaits, for code without an event loop; an iterator and a context manager.

    Whoever waits for an event is let go by `close` from another thread.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __iter__(self) -> Iterator[QueueEvent | EventGap]: ...

    def connect(self) -> None:
        """Connect, and fix the starting point of a reader that starts from now on; idempotent."""
        ...

    def close(self) -> None:
        """End every iteration and let go of the connections; idempotent."""
        ...


class QueueEvents:
    """Iterate over the events of a queue, from now on or from a `position` of an earlier event.

        async with QueueEvents("emails", url) as events:
            async for event in events:
                ...

    Each event comes once, in the order of the server. After a break, pass the last event's `position` as `after`:
    nothing is skipped silently, what went unread meanwhile is reported as an EventGap. `after="0"` reads all that
    is kept. Without an event loop: `with QueueEvents("emails", url).sync as events: for event in events: ...`.

    Raises ValueError for a bad `after`, StorageUnavailable when the server stays away (iterating again resumes), and
    IncompatibleQueueError when the stored queue is not ours.
    """

    def __init__(
        self,
        queue: str,
        storage: str | Storage | None = None,
        *,
        after: str | None = None,
        prefix: str = DEFAULT_PREFIX,
    ) -> None:
        self._client = QueueClient(queue, storage, prefix=prefix, mode=None)
        self._after = after
        self._entry, self._index, self._next_seq = "", 0, _ANY
        self._reads: set[asyncio.Task[list[StreamEntry]]] = set()
        self._closed = False
        if after is not None:
            self._entry, self._index, self._next_seq = _parse_position(after)

    @property
    def position(self) -> str:
        """Where to resume: after the last event that was handed out."""
        return f"{self._entry or '0-0'}/{self._index}/{self._next_seq}"

    @property
    def sync(self) -> SyncQueueEvents:
        """The same for code without an event loop: an iterable that waits, in any thread."""
        return cast("SyncQueueEvents", BlockingIterable(self, self._client.home))

    async def connect(self) -> None:
        """Connect, and fix the starting point of a reader that starts from now on; idempotent."""
        if self._closed:
            raise QueueClosed(
                f"asked to read the events of {self._client.queue!r}, found the reader closed: make another"
            )
        await self._client.open()
        if not self._entry:
            self._entry, self._next_seq = await self._client.functions.last_event()

    async def close(self) -> None:
        """End every iteration and let go of the connections; idempotent.

        Raises RuntimeError while another loop, that the reader belongs to, runs.
        """
        refuse_elsewhere(self._client.loop, f"the reader of the events of queue {self._client.queue!r}")
        self._closed = True
        for read in self._reads:
            read.cancel()
        if self._reads:
            await asyncio.wait(self._reads)
        await self._client.close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[QueueEvent | EventGap]:
        """Iterate for ever; break out of the loop, or close, to end."""
        await self.connect()
        while not self._closed:
            # An entry of which only a part was handed out is read again: exclusive ids start one before it.
            start = before(self._entry) if self._index else self._entry
            for entry, fields in await self._read(start):
                for event in self._unpack(entry.decode(), fields):
                    yield event

    def _follows(self, seq: int) -> bool:
        """Whether an event of this number comes next."""
        if self._next_seq == _ANY:
            return True
        if self._next_seq < _ANY:
            return seq in (0, _OVER - self._next_seq)
        return seq == self._next_seq

    async def _read(self, start: str) -> list[StreamEntry]:
        """Read the next entries; none when this reader is closed meanwhile."""
        key = self._client.keys.key("events")
        read = asyncio.ensure_future(self._client.storage.read_stream(key, start, COUNT, BLOCK_SECONDS))
        self._reads.add(read)
        try:
            return await read
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._closed or (task is not None and task.cancelling()):
                raise
            return []
        finally:
            self._reads.discard(read)

    def _unpack(self, entry: str, fields: dict[bytes, bytes]) -> Iterator[QueueEvent | EventGap]:
        seq, skip = int(fields[b"seq"]), self._index if entry == self._entry else 0
        if not self._follows(seq + skip):
            # Numbers go back when the queue was obliterated and began again.
            missed = seq - self._next_seq if 0 <= self._next_seq < seq else None
            self._entry, self._index, self._next_seq = before(entry), 0, seq
            yield EventGap(missed, self.position)
        at = from_ms(int(fields[b"t"]))
        index = 0
        for kind, job_id, detail in _events(fields[b"e"].decode()):
            index += 1
            if index <= skip:
                continue
            following = seq + index
            self._entry, self._index = entry, index
            self._next_seq = _OVER - following if kind == "obliterated" else following
            key = None
            if kind == "added" and KEY_SEP in detail:
                detail, _, key = detail.partition(KEY_SEP)  # noqa: PLW2901
            yield QueueEvent(cast("EventKind", kind), job_id, at, detail, self.position, key)
        self._entry, self._index = entry, 0


def _events(text: str) -> Iterator[tuple[str, str, str]]:
    for line in text.split("\n"):
        kind, *words = line.split(SEP)
        if kind in WITH_DETAIL:
            for job_id, detail in zip(words[::2], words[1::2], strict=True):
                yield kind, job_id, detail
        else:
            for job_id in words:
                yield kind, job_id, ""


def before(entry: str) -> str:
    """Return the largest stream id below this one."""
    ms, _, number = entry.partition("-")
    if int(number) > 0:
        return f"{ms}-{int(number) - 1}"
    return f"{int(ms) - 1}-{2**64 - 1}" if int(ms) > 0 else "0-0"


def _parse_position(text: str) -> tuple[str, int, int]:
    if text == "0":
        return "0-0", 0, _ANY
    try:
        entry, index, seq = text.split("/")
        ms, number = entry.split("-")
        return f"{int(ms)}-{int(number)}", int(index), int(seq)
    except ValueError:
        raise ValueError(f'after must be "0" or the position of an earlier event, got {text!r}') from None
