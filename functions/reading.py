"""Typed calls of the functions that only read: `reading.lua`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import cast

from glidemq_async.functions.calling import Arg, Calls, Record, counts, record, text, texts


class ReadingCalls(Calls):
    """Calls of the functions in `reading.lua`."""

    __slots__ = ()

    async def is_paused(self) -> bool:
        """Return True if claiming is paused."""
        return await self._caller.read("isPaused") == 1

    async def now(self) -> int:
        """Return the server's time in ms."""
        return cast("int", await self._caller.read("now"))

    async def count_jobs(self) -> dict[str, int]:
        """Return the number of jobs in each state, computed from the structures."""
        return counts(await self._caller.read("countJobs"))

    async def get_records(self, ids: Sequence[str]) -> list[Record]:
        """Return the record of each id, {} for an unknown id. At most 1,000 ids."""
        return await self._caller.read_all("getRecords", ids)

    async def iter_records(self, ids: Sequence[str]) -> AsyncIterator[list[tuple[str, Record]]]:
        """Iterate over the records in the pieces in which the server returns them."""
        async for piece in self._caller.pieces("getRecords", ids):
            yield [(job_id, record(flat)) for job_id, flat in piece]

    async def get_outlines(self, ids: Sequence[str]) -> list[Record]:
        """Return each record without its data but with their `size`; {} for an unknown id."""
        return await self._caller.read_all("getOutlines", ids)

    async def get_heads(self, ids: Sequence[str]) -> list[Record]:
        """Return the small fields of each record, and the `size` of its data; {} for an unknown id. At most 1,000."""
        return await self._caller.read_all("getHeads", ids)

    async def iter_heads(self, ids: Sequence[str]) -> AsyncIterator[list[tuple[str, Record]]]:
        """Iterate over the small fields of the records in the pieces in which the server returns them."""
        async for piece in self._caller.pieces("getHeads", ids):
            yield [(job_id, record(flat)) for job_id, flat in piece]

    async def list_jobs(self, state: str, cursor: str, count: int, *, backwards: bool = False) -> tuple[str, list[str]]:
        """Return a step of the ids in a state, and the cursor of the next step in this direction ("" after the last).

        Forwards is the order in which jobs start; ended ones come newest first.
        """
        args: list[Arg] = [state, cursor, count, int(backwards)]
        cursor_bytes, ids = cast("list[object]", await self._caller.read("listJobs", args))
        return text(cursor_bytes), texts(ids)

    async def get_logs(self, job_id: str, start: int, stop: int) -> tuple[int, list[str]]:
        """Return the number of log lines of a job, and the lines from start to stop (inclusive, as in LRANGE)."""
        found: list[str] = []
        while True:
            count, lines, following = cast("list[object]", await self._caller.read("getLogs", [job_id, start, stop]))
            found += texts(lines)
            if not following:
                return cast("int", count), found
            if stop < 0:
                # An absolute end. A handler may append lines between two steps, and a negative end would move with
                # them.
                stop += cast("int", count)
            start = int(text(following))

    async def get_timed_logs(self, job_id: str) -> list[tuple[int, int, str]]:
        """Return the log lines of a job, each with its time in ms and the number of its run, 0 for unknown ones."""
        found: list[tuple[int, int, str]] = []
        start, following = 0, b"0"
        while following:
            reply = await self._caller.read("getLogs", [job_id, start, -1, 1])
            _, lines, following = cast("tuple[int, list[bytes], bytes]", reply)
            pairs = iter(texts(lines))
            for known, line in zip(pairs, pairs, strict=True):
                at, _, run = known.partition(" ")
                found.append((int(at or 0), int(run or 0), line))
            start = int(following or 0)
        return found

    async def last_event(self) -> tuple[str, int]:
        """Return the last entry of the event stream and the number of events ever written."""
        entry, count = cast("list[object]", await self._caller.read("lastEvent"))
        return text(entry), cast("int", count)
