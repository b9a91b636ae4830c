"""The chunks that a handler streams, as an async iterator with a resumable position.

functions/chunks.lua describes how they are stored, and client/job_tail.py reads them for all listeners.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from glidemq_async.client.job_tail import Position
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import StreamForgotten
from glidemq_async.functions.streaming import ChunkEntry, ChunkRead
from glidemq_async.jobs.reply_codes import not_found
from glidemq_async.options.streams import StreamLimits
from glidemq_async.stored.failure import stored_failure

START: Final = "0-0"
_POSITION: Final = re.compile(r"\d{1,16}-\d{1,16}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a job's stream: its decoded `value`. Pass `position` as `after` to resume after it."""

    value: Any
    position: str


@dataclass(frozen=True, slots=True)
class ChunkGap:
    """Chunks that the reader has missed because they were trimmed.

    `missed` is their number. It is None if the number is unknown: the job was removed and added again, so the chunks
    that follow belong to another stream. Pass `position` as `after` to resume after the gap.
    """

    missed: int | None
    position: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """The job runs again, and the chunks that follow come from its run number `run`.

    The earlier chunks come from runs that did not complete. A reader that shows them usually clears them. `position` is
    the position of the last chunk before it.
    """

    run: int
    position: str


StreamItem: TypeAlias = Chunk | ChunkGap | Restarted


async def read_chunks(client: QueueClient, job_id: str, after: str | None) -> AsyncGenerator[StreamItem]:
    """Iterate over the stream of a job; see `Job.chunks`."""
    reader = _ChunkCursor(client, job_id, parse_position(after))
    tail = client.tail  # raises in the process of a job
    await client.open()
    async with tail.listen(job_id) as feed:
        while True:
            seen = feed.chunks.count
            found = await tail.read_chunks(feed, job_id, reader.position)
            for item in reader.unpack(found):
                yield item
            if reader.is_over:
                return
            if found.status == "unopened":
                await client.functions.streaming.follow(job_id, StreamLimits().ttl_ms)
            elif found.status == "open" and not found.entries:
                await feed.chunks.wait(seen)


async def is_readable(client: QueueClient, job_id: str) -> bool:
    """Return whether the chunks of a job can be read: the job is known, and its stream is not forgotten."""
    # A failed job without a stream is readable too: its end is known.
    (found,) = await client.functions.streaming.read([(job_id, START)])
    return found.status not in ("missing", "forgotten")


def parse_position(after: str | None) -> Position:
    """Return a position that a user has passed. Raises ValueError."""
    if after is None:
        return 0, 0
    if not _POSITION.fullmatch(after):
        raise ValueError(f"after must be the position of an earlier chunk, got {after!r}")
    number, _, run = after.partition("-")
    return int(number), int(run)


class _ChunkCursor:
    """The position of one listener. It turns replies into items."""

    def __init__(self, client: QueueClient, job_id: str, position: Position) -> None:
        self._client = client
        self._job_id = job_id
        self.position = position
        self.is_over = False

    def unpack(self, found: ChunkRead) -> Iterator[StreamItem]:
        """Return the items of a reply. Raises the errors of `Job.chunks`."""
        if found.status == "behind":
            self.position = 0, 0
            yield ChunkGap(None, START)
        elif found.status == "failed":
            raise stored_failure(found.error, found.reason)
        elif found.status in ("missing", "forgotten"):
            raise StreamForgotten(
                f"the stream of job {self._job_id!r} is forgotten: the job does not exist, or its stream was kept for "
                "its ttl and then deleted. Keep streams longer with StreamLimits(ttl=...) of the worker"
            )
        self.is_over = found.status == "completed"
        for entry in found.entries:
            yield from self._item(entry)

    def _item(self, entry: ChunkEntry) -> Iterator[StreamItem]:
        number, run = self.position
        has_ended = b"end" in entry.fields
        first = entry.number if has_ended else entry.number - 1
        if first > number:
            number = first
            missed, self.position = first - self.position[0], (first, run)
            yield ChunkGap(missed, f"{first}-{run}")
        last_run = int(entry.fields[b"run"]) if has_ended else entry.run
        if number and last_run > run > 0:
            yield Restarted(last_run, f"{number}-{run}")
        if has_ended:
            self._end(entry.fields)
            return
        self.position = entry.number, entry.run
        (payload,) = entry.fields.values()
        yield Chunk(self._client.decode(payload, "chunk", "", self._job_id), f"{entry.number}-{entry.run}")

    def _end(self, fields: dict[bytes, bytes]) -> None:
        state = fields[b"end"]
        if state == b"failed":
            raise stored_failure(fields[b"error"], fields[b"reason"].decode(errors="replace"))
        if state == b"removed":
            raise not_found("read the chunks of", self._job_id)
        self.is_over = True
