"""Typed calls of the functions for streams of chunks: `streaming.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from glidemq_async.functions.calling import Arg, Calls, text, texts


class ChunkGroup(NamedTuple):
    """The chunks of one run in a call, and the limits of its stream."""

    job_id: str
    entry: str
    most_chunks: int
    most_bytes: int
    ttl_ms: int
    chunks: Sequence[bytes]


class ChunkEntry(NamedTuple):
    """An entry of a stream: the number of its chunk, its run, and its fields."""

    number: int
    run: int
    fields: dict[bytes, bytes]


class ChunkRead(NamedTuple):
    """The reply for one stream. `streaming.lua` lists the statuses."""

    status: str
    entries: Sequence[ChunkEntry] = ()
    reason: str = ""
    error: bytes = b""


class StreamingCalls(Calls):
    """Calls of the functions in `streaming.lua`."""

    __slots__ = ()

    async def append(self, groups: Sequence[ChunkGroup]) -> list[str]:
        """Append chunks. Return the status of each group. The groups beyond the last status were not appended."""
        args: list[Arg] = [self._caller.consumer, len(groups)]
        for job_id, entry, most_chunks, most_bytes, ttl_ms, chunks in groups:
            args += [job_id, entry, most_chunks, most_bytes, ttl_ms, len(chunks), *chunks]
        return texts(await self._caller.once("addChunks", args))

    async def follow(self, job_id: str, ttl_ms: int) -> str:
        """Open the stream of a job that has not ended. Return the status."""
        return text(await self._caller.call("followChunks", [job_id, ttl_ms]))

    async def read(self, wanted: Sequence[tuple[str, str]]) -> list[ChunkRead]:
        """Read the entries after a position in each of these streams. The reply to the first one is always there."""
        args: list[Arg] = [arg for one in wanted for arg in one]
        replies = cast("list[list[object]]", await self._caller.read("readChunks", args))
        return [_read(text(status), rows) for status, rows in replies]


def _read(status: str, rows: object) -> ChunkRead:
    if status == "failed":
        reason, error = cast("list[bytes]", rows)
        return ChunkRead(status, (), reason.decode(errors="replace"), error)
    return ChunkRead(status, [_entry(*row) for row in cast("list[tuple[bytes, list[bytes]]]", rows)])


def _entry(entry_id: bytes, fields: list[bytes]) -> ChunkEntry:
    number, _, run = entry_id.decode().partition("-")
    return ChunkEntry(int(number), int(run), dict(zip(fields[::2], fields[1::2], strict=True)))
