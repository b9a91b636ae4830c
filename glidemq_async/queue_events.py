"""The lifecycle events of a queue as an async iterator with a resumable position.

How events are stored is told in functions/events.lua; the catalogue is in docs/events.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias, cast

from glidemq_async.client import DEFAULT_PREFIX, QueueClient
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
        "obliterated",
    }
)

COUNT: Final = 200
BLOCK_SECONDS: Final = 2.0
_SEP: Final = "\x1f"


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """Something that happened to a job or to the queue.

    `detail` is the job's name (added), the reason (failed), the queue it goes to (dead-lettered), "<delay ms> <reason>"
    (retrying), the number of stalls (stalled), how it came (waiting: "", "promoted", "retried", "replayed"), the state
    it was in (removed; "replaced" when a later add took its place), the milliseconds of a limit (limited, key-paused,
    whose `job_id` is the key), what changed (changed: "priority 5", "delay 500"), the deduplication id (duplicate),
    which slots of the scheduler `job_id` and why (skipped), or how many jobs went (drained, cleaned, obliterated).
    `job_id` is "" where the queue is meant. `position` is where to resume after this event.
    """

    kind: EventKind
    job_id: str
    at: datetime
    detail: str
    position: str


@dataclass(frozen=True, slots=True)
class EventGap:
    """Events that were trimmed before they were read; `missed` says how many."""

    missed: int
    position: str


class QueueEvents:
    """Iterate over the events of a queue, from now on or from a `position` of an earlier event.

        async with QueueEvents("emails", url) as events:
            async for event in events:
                ...

    Each event comes once, in the order of the server. After a break, pass the last event's `position` as `after`:
    nothing is skipped silently, what was trimmed meanwhile is reported as an EventGap. `after="0"` reads all that
    is kept. Raises StorageUnavailable when the server stays away; iterating again resumes.
    """

    def __init__(
        self,
        queue: str,
        storage: str | Storage | None = None,
        *,
        after: str | None = None,
        prefix: str = DEFAULT_PREFIX,
    ) -> None:
        self._client = QueueClient(queue, storage, prefix=prefix, mode=None, serializer=None, payload_limit=None)
        self._after = after
        self._entry, self._index, self._next_seq = "", 0, -1
        self._reads: set[asyncio.Task[list[StreamEntry]]] = set()
        self._closed = False
        if after is not None:
            self._entry, self._index, self._next_seq = _parse_position(after)

    @property
    def position(self) -> str:
        """Where to resume: after the last event that was handed out."""
        return f"{self._entry or '0-0'}/{self._index}/{self._next_seq}"

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
        """End every iteration and let go of the connections; idempotent."""
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
            start = _before(self._entry) if self._index else self._entry
            for entry, fields in await self._read(start):
                for event in self._unpack(entry.decode(), fields):
                    yield event

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
        if self._next_seq >= 0 and seq > self._next_seq:
            missed = seq - self._next_seq
            self._entry, self._index, self._next_seq = _before(entry), 0, seq
            yield EventGap(missed, self.position)
        at = from_ms(int(fields[b"t"]))
        index = 0
        for kind, job_id, detail in _events(fields[b"e"].decode()):
            index += 1
            if index <= skip:
                continue
            self._entry, self._index, self._next_seq = entry, index, seq + index
            yield QueueEvent(cast("EventKind", kind), job_id, at, detail, self.position)
        self._entry, self._index = entry, 0


def _events(text: str) -> Iterator[tuple[str, str, str]]:
    for line in text.split("\n"):
        kind, *words = line.split(_SEP)
        if kind in WITH_DETAIL:
            for job_id, detail in zip(words[::2], words[1::2], strict=True):
                yield kind, job_id, detail
        else:
            for job_id in words:
                yield kind, job_id, ""


def _before(entry: str) -> str:
    """Return the largest stream id below this one."""
    ms, _, number = entry.partition("-")
    if int(number) > 0:
        return f"{ms}-{int(number) - 1}"
    return f"{int(ms) - 1}-{2**64 - 1}" if int(ms) > 0 else "0-0"


def _parse_position(text: str) -> tuple[str, int, int]:
    if text == "0":
        return "0-0", 0, -1
    try:
        entry, index, seq = text.split("/")
        ms, number = entry.split("-")
        return f"{int(ms)}-{int(number)}", int(index), int(seq)
    except ValueError:
        raise ValueError(f'after must be "0" or the position of an earlier event, got {text!r}') from None
