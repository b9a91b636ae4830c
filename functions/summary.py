"""Typed call of the function that reads the figures of a queue for an overview: `summary.lua`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, cast

from glidemq_async.functions.calling import BatchStore, Calls, FunctionStore
from glidemq_async.functions.key_limits import StoredQueueLimits

MOST_WORKERS: Final = 200
"""Maximum number of workers whose description is read."""
_NO_MINUTES: Final[Mapping[int, int]] = {}
_NO_LIMITS: Final = StoredQueueLimits(None, None, None, None, None)


class QueueFigures(NamedTuple):
    """Reply of `summarize`. Instants are in ms; a minute is counted since 1970."""

    # A named tuple, because an overview makes thousands of them: a frozen dataclass takes five times as long.
    now: int
    counts: dict[str, int]
    paused: bool
    oldest: int | None
    limits: StoredQueueLimits
    completed: Mapping[int, int]
    """Number of jobs that completed in each of the last 60 minutes; minutes without one are missing."""
    failed: Mapping[int, int]
    workers: tuple[bytes, ...]
    """The descriptions of up to 200 live workers, packed by them."""
    alive: int
    schedules: int
    next_fire: int | None
    dead_letter: str
    """The queue that receives dead letters of this queue, "" for none."""


_Minutes: TypeAlias = list[tuple[int, int]]
_Summary: TypeAlias = tuple[
    int,
    list[object],
    int,
    int | bytes,
    list[bytes],
    _Minutes,
    _Minutes,
    list[bytes],
    int,
    tuple[int, int | bytes],
    bytes,
]


class SummaryCalls(Calls):
    """Calls of the function in `summary.lua`."""

    __slots__ = ()

    async def read(self, most_workers: int = MOST_WORKERS) -> QueueFigures:
        """Return the figures of the queue, with the descriptions of up to `most_workers` workers."""
        return _figures(await self._caller.read("summarize", [most_workers]))


async def read_summaries(storage: FunctionStore, bases: Sequence[str]) -> list[QueueFigures | None]:
    """Try once to return the figures of queues, which are named by their base keys.

    The figures are None where the call was refused or lost: `SummaryCalls.read` tries again, and raises the reason.
    """
    if not isinstance(storage, BatchStore):
        return [None] * len(bases)
    replies = await storage.read_each("summarize", bases, [MOST_WORKERS])
    return [None if reply is None else _figures(reply) for reply in replies]


def _figures(reply: object) -> QueueFigures:
    now, flat, paused, oldest, limits, completed, failed, workers, alive, (number, fire), dead_letter = cast(
        "_Summary", reply
    )
    return QueueFigures(
        now,
        dict(zip(map(_state, cast("list[bytes]", flat[::2])), cast("list[int]", flat[1::2]), strict=True)),
        paused == 1,
        _optional(oldest),
        _limits(limits),
        dict(completed) if completed else _NO_MINUTES,
        dict(failed) if failed else _NO_MINUTES,
        tuple(workers),
        alive,
        number,
        _optional(fire),
        dead_letter.decode(),
    )


@lru_cache(maxsize=100)
def _state(name: bytes) -> str:
    return name.decode()


def _limits(values: Sequence[bytes]) -> StoredQueueLimits:
    return StoredQueueLimits(*(int(float(each)) if each else None for each in values)) if any(values) else _NO_LIMITS


def _optional(value: int | bytes) -> int | None:
    return value if isinstance(value, int) else None
