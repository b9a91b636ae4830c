"""Typed call of the function that reads the figures of a queue for an overview: `summary.lua`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from glidemq_async.functions.calling import Calls, counts
from glidemq_async.functions.key_limits import StoredQueueLimits

MOST_WORKERS: Final = 200
"""Maximum number of workers whose description is read."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """Reply of `summarize`. Instants are in ms; a minute is counted since 1970."""

    now: int
    counts: dict[str, int]
    paused: bool
    oldest: int | None
    limits: StoredQueueLimits
    completed: dict[int, int]
    """Number of jobs that completed in each of the last 60 minutes; minutes without one are missing."""
    failed: dict[int, int]
    workers: tuple[bytes, ...]
    """The descriptions of up to 200 live workers, packed by them."""
    alive: int
    schedules: int
    next_fire: int | None
    dead_letter: str
    """The queue that receives dead letters of this queue, "" for none."""


_Minutes: TypeAlias = list[tuple[int, int]]
_Summary: TypeAlias = tuple[
    int, object, int, int | bytes, list[bytes], _Minutes, _Minutes, list[bytes], int, tuple[int, int | bytes], bytes
]


class SummaryCalls(Calls):
    """Calls of the function in `summary.lua`."""

    __slots__ = ()

    async def read(self, most_workers: int = MOST_WORKERS) -> QueueFigures:
        """Return the figures of the queue, with the descriptions of up to `most_workers` workers."""
        reply = cast("_Summary", await self._caller.read("summarize", [most_workers]))
        now, flat, paused, oldest, limits, completed, failed, workers, alive, (number, fire), dead_letter = reply
        return QueueFigures(
            now,
            counts(flat),
            paused == 1,
            _optional(oldest),
            StoredQueueLimits(*(int(float(each)) if each else None for each in limits)),
            dict(completed),
            dict(failed),
            tuple(workers),
            alive,
            number,
            _optional(fire),
            dead_letter.decode(),
        )


def _optional(value: int | bytes) -> int | None:
    return value if isinstance(value, int) else None
