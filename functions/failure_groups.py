"""Typed call of the function that lists groups of failures: `failure_groups.lua`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import msgpack

from glidemq_async.functions.calling import Calls, text

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class FailureGroupRow:
    """One group. Times are in ms. `trend` has the failures of the last 24 hours, the present hour last."""

    fingerprint: str
    count: int
    first: int
    last: int
    trend: tuple[int, ...]
    name: str
    error_type: str
    place: str
    message: str
    sample: str
    began: str
    versions: dict[str, int]


class FailureGroupCalls(Calls):
    """Calls of the functions in `failure_groups.lua`."""

    __slots__ = ()

    async def list(self) -> list[FailureGroupRow]:
        """Return the groups of the queue, the one that failed last first."""
        rows: dict[str, FailureGroupRow] = {}
        cursor = ""
        while True:
            reply = await self._caller.read("listFailureGroups", [cursor])
            following, found, now = cast("tuple[bytes, list[list[bytes]], int]", reply)
            for fingerprint, packed in found:
                row = _row(fingerprint.decode(errors="replace"), packed, now)
                rows.setdefault(row.fingerprint, row)  # a group that failed between two steps is met again
            cursor = text(following)
            if not cursor:
                return list(rows.values())


def _row(fingerprint: str, packed: bytes, now: int) -> FailureGroupRow:
    values = cast("list[object]", msgpack.unpackb(packed, raw=True))
    count, first, last, hour, trend = cast("tuple[int, int, int, int, list[int]]", values[:5])
    # The group knows its hours up to its last failure.
    by = min(max(0, now // _HOUR_MS - hour), len(trend))
    # Lua has cut the texts at a byte.
    name, error_type, place, message, sample, began = map(_lenient, cast("list[bytes]", values[5:11]))
    versions = iter(cast("list[Any]", values[11]))
    counted = {_lenient(version): cast("int", number) for version, number in zip(versions, versions, strict=True)}
    hours = (*trend[by:], *[0] * by)
    return FailureGroupRow(
        fingerprint, count, first, last, hours, name, error_type, place, message, sample, began, counted
    )


def _lenient(text: bytes) -> str:
    return text.decode(errors="replace")
