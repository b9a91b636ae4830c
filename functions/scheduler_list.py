"""Typed calls of the functions that read the stored schedulers: `scheduler_list.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from glidemq_async.functions.calling import Calls, Record, record, text, texts


class StoredScheduler(NamedTuple):
    """A stored scheduler; `next` is its next fire time in ms, None when it has ended."""

    id: str
    next: int | None
    record: Record


class SchedulerListCalls(Calls):
    """Calls of the functions in `scheduler_list.lua`."""

    __slots__ = ()

    async def list_ids(self, cursor: str) -> tuple[str, list[str]]:
        """Return a step of the ids of all schedulers, and the cursor of the next step ("" after the last)."""
        found, ids = cast("list[object]", await self._caller.read("listSchedulers", [cursor]))
        return text(found), texts(ids)

    async def get(self, ids: Sequence[str]) -> tuple[int, list[StoredScheduler | None]]:
        """Return the server's time, and the stored scheduler of each id, None for an unknown id. At most 20 ids."""
        # `now` is the time of the last reply. A fire time is compared with the clock of the server and never with the
        # clock of this machine.
        found: list[StoredScheduler | None] = []
        now = 0
        # The server returns fewer per call when they are large.
        while len(found) < len(ids):
            asked = ids[len(found) :]
            now, rows = cast("tuple[int, list[list[object]]]", await self._caller.read("getSchedulers", list(asked)))
            found += [_stored(scheduler_id, row) for scheduler_id, row in zip(asked, rows, strict=False)]
        return now, found


def _stored(scheduler_id: str, row: list[object]) -> StoredScheduler | None:
    if not row:
        return None
    next_fire = text(row[0])
    return StoredScheduler(scheduler_id, int(next_fire) if next_fire else None, record(row[1]))
