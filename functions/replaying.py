"""Typed calls of the functions that list and replay dead letters: `replaying.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, cast

from glidemq_async.functions.calling import Arg, Calls, text, texts


class MovedDeadLetter(NamedTuple):
    """A dead letter in the queue that it was moved to."""

    id: str
    origin: bytes
    name: bytes
    data: bytes
    opts: bytes


class Revival(NamedTuple):
    """A dead letter that returns to its queue of origin; `failed_ms` is when it failed there."""

    token: str
    id: str
    failed_ms: int
    name: bytes
    data: bytes
    opts: bytes
    route: str


class ReplayStep(NamedTuple):
    """One step of a replay: where the next step continues (0 left: this was the last), and how many jobs started."""

    skip: int
    left: int
    replayed: int


class MovedStep(NamedTuple):
    """One step of reading dead letters that were moved here, and where the next step continues."""

    skip: int
    left: int
    found: list[MovedDeadLetter]


class ReplayingCalls(Calls):
    """Calls of the functions in `replaying.lua`."""

    __slots__ = ()

    async def list_ids(
        self, which: Literal["failed", "moved"], cursor: str, count: int, cause: str
    ) -> tuple[str, list[str]]:
        """Return a step of ids, newest first, and the cursor of the next step ("" after the last)."""
        reply = cast("list[object]", await self._caller.read("listDeadLetters", [which, cursor, count, cause]))
        return text(reply[0]), texts(reply[1])

    async def replay_failed(self, skip: int, left: int | None, count: int, cause: str) -> ReplayStep:
        """Start up to `count` jobs that failed here again; left=None is the first step."""
        # `left` is the number of jobs that had failed when the first step began. Without it, a job that fails again
        # during the replay would be replayed again, for ever.
        args: list[Arg] = [skip, "" if left is None else left, count, cause]
        return ReplayStep(*cast("list[int]", await self._caller.once("replayFailed", args)))

    async def read_moved(self, skip: int, left: int | None, count: int, cause: str) -> MovedStep:
        """Read up to `count` dead letters that were moved here; left=None is the first step."""
        args: list[Arg] = [skip, "" if left is None else left, count, cause]
        skip, left, flat = cast("tuple[int, int, list[bytes]]", await self._caller.read("readMoved", args))
        rows = [flat[at : at + 5] for at in range(0, len(flat), 5)]
        return MovedStep(skip, left, [MovedDeadLetter(row[0].decode(), *row[1:]) for row in rows])

    async def revive(self, revivals: Sequence[Revival]) -> list[str]:
        """Run up to 100 dead letters again in this queue, from which they came. Return the statuses."""
        args: list[Arg] = [len(revivals)]
        for revival in revivals:
            args += revival
        # Two marks protect a revival. The number of the call covers a repeated call, for as long as the server stores
        # its reply. The token covers a replay that was interrupted and is started again later: the queue of origin
        # replies "seen" to a token that it already has.
        return texts(await self._caller.once("reviveJobs", args))

    async def drop_moved(self, ids: Sequence[str]) -> int:
        """Delete dead letters that were moved here and do not run. Return their number."""
        return cast("int", await self._caller.once("dropMoved", list(ids)))
