"""Typed calls of the functions for the history of a job: `job_history.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from glidemq_async.functions.calling import Calls

_ENTRIES, _VALUES = "\x1e", "\x1f"
_MOST_IDS = 200


class StoredHistory(NamedTuple):
    """The stored entries of a history, each a list of texts, and the worker of a running job with its version."""

    entries: list[list[str]]
    consumer: str
    version: str


class JobHistoryCalls(Calls):
    """Calls of the functions in `job_history.lua`."""

    __slots__ = ()

    async def get(self, job_id: str) -> StoredHistory:
        """Return the stored history of a job, empty for a job that does not exist."""
        reply = cast("list[bytes]", await self._caller.read("getHistory", [job_id]))
        kept, consumer, version = (value.decode(errors="replace") for value in reply)
        entries = [entry.split(_VALUES) for entry in kept.split(_ENTRIES)] if kept else []
        return StoredHistory(entries, consumer, version)

    async def note_action(self, job_ids: Sequence[str], actor: str, action: str, note: str = "") -> int:
        """Add an action of an operator to the histories of these jobs. Return how many of them exist."""
        at = noted = 0
        while at < len(job_ids):
            some = job_ids[at : at + _MOST_IDS]
            looked, found = cast("list[int]", await self._caller.once("noteAction", [actor, action, note, *some]))
            at, noted = at + looked, noted + found
        return noted

    async def set_bytes(self, count: int) -> None:
        """Set the size in bytes of the history that each job keeps, 0 for none."""
        await self._caller.call("setHistory", [count])
