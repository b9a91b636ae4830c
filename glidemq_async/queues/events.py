"""The lifecycle events of a queue as an async iterator with a resumable position.

functions/events.lua describes how they are stored, and docs/events.md lists the kinds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, cast

import msgpack

from glidemq_async._internal.blocking import BlockingContext, blocking
from glidemq_async._internal.connectable import Connectable
from glidemq_async._internal.loops import refuse_elsewhere
from glidemq_async.client.queue_client import DEFAULT_PREFIX, QueueClient
from glidemq_async.durations import from_ms
from glidemq_async.errors import QueueClosed, SerializationError
from glidemq_async.payloads.codecs import Codec
from glidemq_async.payloads.serialization import Serializer
from glidemq_async.storage import StorageLike, StreamEntry

EventKind: TypeAlias = Literal[
    "added",
    "delayed",
    "suspended",
    "signalled",
    "lost",
    "waiting-children",
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
        "signalled",
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
        "lost",
        "obliterated",
    }
)

#: The kinds whose events may have the name and the ordering key of the job, without a detail for them.
WITH_CONTENT: Final = frozenset({"progress", "completed", "failed", "retrying"})
#: The name, the ordering key, the size of the result, and the stored value.
EventContents: TypeAlias = dict[str, tuple[str, str, int | None, bytes | None]]
#: The key, the name, the value and the size of an event.
_Content: TypeAlias = tuple[str | None, str | None, Any, int | None]

COUNT: Final = 200
"""Maximum number of entries in one read. An entry holds all events of one call."""
BLOCK_SECONDS: Final = 2.0
"""Time after which a waiting read is repeated. The server pushes new entries; this detects a lost connection."""
SEP: Final = "\x1f"
#: Separates the name and the ordering key in the stored event of an added job.
KEY_SEP: Final = "\x1e"
# The number of the next event is n, or _ANY if it is unknown. After an obliteration it is _OVER - n: the next event is
# the first one of a new queue, or n if jobs were added during the obliteration and the queue continues.
_ANY: Final = -1
_OVER: Final = -2


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """Something that happened to a job or to the queue, at the server's time `at`.

    The meaning of `detail` depends on the `kind`:

    - added: the name of the job.
    - waiting: how the job became ready: "", "promoted", "retried", "replayed", "followed" or "children".
    - retrying: "<delay in ms> <reason>".
    - failed: the reason.
    - stalled: the number of stalls.
    - removed: the previous state, "replaced" if a later add replaced the job, or "flow" if no parent needed it.
    - dead-lettered: the queue that receives the job.
    - changed: the change, for example "priority 5" or "delay 500".
    - duplicate: the deduplication id.
    - limited, key-paused: the duration of the limit in milliseconds; `job_id` is the ordering key.
    - skipped: the fire times of the scheduler `job_id` that were skipped, and the cause.
    - written: "<state> <jobs> <write id>" of a bulk write that ended.
    - drained, cleaned, obliterated: the number of jobs.

    `job_id` is "" for events of the whole queue. Pass `position` to a new reader to resume after this event.

    `name` and `key` are the name and the ordering key of the job in `added` and `progress`. `value` is the value of
    `progress`. It is None if the stored progress has more than 1 KiB, or if this reader has not the codecs or the
    serializer to read it. If the rules of the queue ask for content, `completed`, `failed` and `retrying` have a name
    and a key too, and `completed` has the `size` of the stored result in bytes and perhaps the result as `value`; see
    EventRules. Otherwise these attributes are None.
    """

    kind: EventKind
    job_id: str
    at: datetime
    detail: str
    position: str
    key: str | None = None
    name: str | None = None
    value: Any = field(default=None, hash=False)
    size: int | None = None


@dataclass(frozen=True, slots=True)
class EventGap:
    """Events that were deleted before they were read.

    If they were trimmed, `missed` is their number. If the queue was obliterated, the number is unknown and `missed` is
    None; the events that follow belong to the new queue of the same name. Pass `position` to a new reader to resume
    after the gap.
    """

    missed: int | None
    position: str


# A position has three parts, because two different things can go wrong.
#
# - Entry and index are the place where a reader continues. One entry holds all events of one call of the server, so a
#   reader may stop inside it. It then reads the entry again and skips the events before the index.
# - The next number shows losses. The server numbers all events of a queue, and trimming removes whole entries. A reader
#   that finds a larger number than the expected one has missed exactly the difference.
#
# A smaller number means that the queue was obliterated and created again, and that the numbers begin again. The size of
# the loss is unknown then, unless the reader has seen the event `obliterated`; its position records that as `_OVER`.
#
# The server keeps no cursor. Any number of readers cost nothing there, and a position stays valid in another process.
class QueueEvents(Connectable):
    """Iterate over the events of a queue, starting with new events or at the `position` of an earlier event.

        async with QueueEvents("emails", url) as events:
            async for event in events:
                ...

    Each event is delivered once, in the order of the server. To continue after an interruption, pass the last event's
    `position` as `after`. Events that were deleted unread are reported as an EventGap. `after="0"` reads all stored
    events. Without an event loop: `with QueueEvents("emails", url).sync as events: for event in events: ...`.
    `serializer` and `codecs` read the values of events, as for Queue.

    Raises ValueError for a bad `after`, StorageUnavailable when the server cannot be reached (iterate again to resume),
    and IncompatibleQueueError when the stored queue belongs to another library, layout or mode.
    """

    def __init__(
        self,
        queue: str,
        storage: StorageLike = None,
        *,
        after: str | None = None,
        prefix: str = DEFAULT_PREFIX,
        serializer: Serializer | None = None,
        codecs: Sequence[Codec] = (),
    ) -> None:
        self._client = QueueClient(queue, storage, prefix=prefix, mode=None, serializer=serializer, codecs=codecs)
        self._after = after
        self._entry, self._index, self._next_seq = "", 0, _ANY
        self._reads: set[asyncio.Task[list[StreamEntry]]] = set()
        self._closed = False
        if after is not None:
            self._entry, self._index, self._next_seq = _parse_position(after)

    @property
    def position(self) -> str:
        """The position after the last delivered event. Pass it as `after` to resume."""
        return f"{self._entry or '0-0'}/{self._index}/{self._next_seq}"

    @property
    def sync(self) -> SyncQueueEvents:
        """The events for code without an event loop: an iterable that blocks, in any thread."""
        return SyncQueueEvents(self, self._client.home)

    async def connect(self) -> None:
        """Connect, and fix the start position of a reader that reads new events. Idempotent.

        Raises QueueClosed after `close`, StorageUnavailable and IncompatibleQueueError.
        """
        if self._closed:
            raise QueueClosed(f"the event reader of queue {self._client.queue!r} is closed; create a new QueueEvents")
        await self._client.open()
        if not self._entry:
            self._entry, self._next_seq = await self._client.functions.reading.last_event()

    async def close(self) -> None:
        """End every iteration and close the connections. Idempotent.

        Raises RuntimeError if the reader belongs to another event loop that is still running.
        """
        refuse_elsewhere(self._client.loop, f"the event reader of queue {self._client.queue!r}")
        self._closed = True
        for read in self._reads:
            read.cancel()
        if self._reads:
            await asyncio.wait(self._reads)
        await self._client.close(
            f"the event reader of queue {self._client.queue!r} is closed; create a new QueueEvents"
        )

    async def __aiter__(self) -> AsyncIterator[QueueEvent | EventGap]:
        """Iterate until `close` is called. Break out of the loop to end earlier."""
        await self.connect()
        while not self._closed:
            # The last entry may have been delivered only in part, so read it again. Ids are exclusive: start one before
            # it.
            start = before(self._entry) if self._index else self._entry
            for entry, fields in await self._read(start):
                for event in self._unpack(entry.decode(), fields):
                    yield event

    def _follows(self, seq: int) -> bool:
        """Return whether an event with this number is the expected next one."""
        if self._next_seq == _ANY:
            return True
        if self._next_seq < _ANY:
            return seq in (0, _OVER - self._next_seq)
        return seq == self._next_seq

    async def _read(self, start: str) -> list[StreamEntry]:
        """Read the next entries. Return none if this reader was closed during the read."""
        key = self._client.keys.key("events")
        read = asyncio.ensure_future(self._client.storage.read_stream(key, start, COUNT, BLOCK_SECONDS))
        self._reads.add(read)
        try:
            return await read
        except asyncio.CancelledError:
            # Two things end this wait with CancelledError: `close` cancelled the read, or other code cancelled the task
            # that iterates. In the first case the iteration ends normally. In the second case the error must be raised,
            # even if the reader was closed at the same moment: otherwise a timeout or TaskGroup around the loop would
            # lose its cancellation. `_closed` alone cannot separate the cases, so ask the task.
            task = asyncio.current_task()
            if not self._closed or (task is not None and task.cancelling()):
                raise
            return []
        finally:
            self._reads.discard(read)

    def _unpack(self, entry: str, fields: dict[bytes, bytes]) -> Iterator[QueueEvent | EventGap]:
        seq, skip = int(fields[b"seq"]), self._index if entry == self._entry else 0
        if not self._follows(seq + skip):
            # The numbers restart when the queue was obliterated and created again.
            missed = seq - self._next_seq if 0 <= self._next_seq < seq else None
            # The position goes before the entry, so that a reader that stops at the gap still gets the events after it.
            self._entry, self._index, self._next_seq = before(entry), 0, seq
            yield EventGap(missed, self.position)
        at = from_ms(int(fields[b"t"]))
        index, contents = 0, contents_of(fields)
        for kind, job_id, detail in _events(fields[b"e"].decode()):
            index += 1
            if index <= skip:
                continue
            following = seq + index
            # Before the `yield`, because a consumer may stop at any event, and `position` must then count this event as
            # delivered.
            self._entry, self._index = entry, index
            self._next_seq = _OVER - following if kind == "obliterated" else following
            detail, content = self._content(kind, job_id, detail, contents)  # noqa: PLW2901
            yield QueueEvent(cast("EventKind", kind), job_id, at, detail, self.position, *content)
        # The entry is complete. The next read can start after it and need not read it again.
        self._entry, self._index = entry, 0

    def _content(self, kind: str, job_id: str, detail: str, contents: EventContents) -> tuple[str, _Content]:
        """Return the detail of an event, and the key, the name, the value and the size of its job."""
        if kind == "added":
            name, separator, key = detail.partition(KEY_SEP)
            return name, (key if separator else None, name, None, None)
        known = contents.get(job_id) if kind in WITH_CONTENT else None
        if known is None:
            return detail, (None, None, None, None)
        name, key, size, packed = known
        what: Literal["progress", "result"] = "progress" if kind == "progress" else "result"
        value = None if packed is None else self._value(packed, what, name, job_id)
        return detail, (key or None, name or None, value, size)

    def _value(self, packed: bytes, what: Literal["progress", "result"], name: str, job_id: str) -> object:
        try:
            return self._client.decode(packed, what, name, job_id)
        except SerializationError:
            return None


class SyncQueueEvents(BlockingContext[QueueEvents]):
    """`events.sync`: QueueEvents for code without an event loop, as a blocking iterator and context manager.

    A call of `close` in another thread ends the wait for the next event.
    """

    connect = blocking(QueueEvents.connect)
    close = blocking(QueueEvents.close)

    def __iter__(self) -> Iterator[QueueEvent | EventGap]:
        return self._iterate(aiter(self._owner))


def contents_of(fields: dict[bytes, bytes]) -> EventContents:
    """Return the name, the key, the size of the result and the value of the jobs in an entry, by id."""
    if b"name" in fields:
        only = fields[b"e"].decode().partition(SEP)[2]
        return {only: (fields[b"name"].decode(), fields.get(b"key", b"").decode(), None, fields.get(b"v"))}
    if b"c" not in fields:
        return {}
    unpacked = cast("dict[bytes, list[Any]]", msgpack.unpackb(fields[b"c"], raw=True, strict_map_key=False))
    found: EventContents = {}
    for job_id, (name, key, *result) in unpacked.items():
        size, packed = [*result, None, None][:2]
        found[job_id.decode()] = name.decode(), key.decode(), size, packed
    return found


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
    """Return the largest stream id before this one."""
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
