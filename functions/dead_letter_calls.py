"""Typed callers of the functions that move and replay dead letters.

On the server: `dead_letters.lua`, `replaying.lua`, `outbox.lua` and `inbox.lua`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, cast

from glidemq_async.functions.calling import Arg, Caller, text, texts


class Posted(NamedTuple):
    """One entry of an outbox: the target's base key and a job for it."""

    entry: str
    to: str
    id: bytes
    name: bytes
    data: bytes
    opts: bytes
    extra: bytes
    letter: bytes


class Delivery(NamedTuple):
    """A job for another queue. Its `token` makes repeated deliveries have one effect."""

    token: str
    id: bytes
    name: bytes
    data: bytes
    opts: bytes
    extra: bytes
    letter: bytes


class MovedLetter(NamedTuple):
    """A dead letter in the queue that it was moved to."""

    id: str
    letter: bytes
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
    letters: list[MovedLetter]


class DeadLetterCalls(Caller):
    """Callers of the functions for dead letters and the outbox."""

    async def set_dead_letter_queue(self, name: str) -> None:
        """Set the queue that receives copies of dead letters; "": none."""
        await self.call("setDeadLetter", [name])

    async def get_dead_letter_queue(self) -> str:
        """Return the queue that receives copies of dead letters, "" for none."""
        return text(await self.read("getDeadLetter"))

    async def relay_outbox(self, holder: str, after: str, done: Sequence[str]) -> tuple[str, list[Posted]]:
        """Remove delivered entries from the outbox and read some of the rest; [] at the end, or if another relays."""
        reply = await self.call("relayOutbox", [holder, after, len(done), *done])
        last, flat = cast("tuple[bytes, list[bytes]]", reply)
        rows = [flat[at : at + 8] for at in range(0, len(flat), 8)]
        return last.decode(), [Posted(row[0].decode(), row[1].decode(), *row[2:]) for row in rows]

    async def deliver_jobs(self, deliveries: Sequence[Delivery]) -> dict[int, str]:
        """Add jobs that another queue posted, each token once. Return why positions were not added. At most 100."""
        args: list[Arg] = [len(deliveries)]
        for delivery in deliveries:
            args += delivery
        flat = cast("list[object]", await self.once("deliverJobs", args))
        return {cast("int", flat[i]) - 1: text(flat[i + 1]) for i in range(0, len(flat), 2)}

    async def list_dead_letters(
        self, which: Literal["failed", "moved"], cursor: str, count: int, cause: str
    ) -> tuple[str, list[str]]:
        """Return a step of ids, newest first, and the cursor of the next step ("" after the last)."""
        reply = cast("list[object]", await self.read("listDeadLetters", [which, cursor, count, cause]))
        return text(reply[0]), texts(reply[1])

    async def replay_failed(self, skip: int, left: int | None, count: int, cause: str) -> ReplayStep:
        """Start up to `count` jobs that failed here again; left=None is the first step."""
        args: list[Arg] = [skip, "" if left is None else left, count, cause]
        return ReplayStep(*cast("list[int]", await self.once("replayFailed", args)))

    async def read_moved(self, skip: int, left: int | None, count: int, cause: str) -> MovedStep:
        """Read up to `count` dead letters that were moved here; left=None is the first step."""
        args: list[Arg] = [skip, "" if left is None else left, count, cause]
        skip, left, flat = cast("tuple[int, int, list[bytes]]", await self.read("readMoved", args))
        rows = [flat[at : at + 5] for at in range(0, len(flat), 5)]
        return MovedStep(skip, left, [MovedLetter(row[0].decode(), *row[1:]) for row in rows])

    async def revive_jobs(self, revivals: Sequence[Revival]) -> list[str]:
        """Run up to 100 dead letters again in this queue, from which they came. Return the statuses."""
        args: list[Arg] = [len(revivals)]
        for revival in revivals:
            args += revival
        return texts(await self.once("reviveJobs", args))

    async def drop_moved(self, ids: Sequence[str]) -> int:
        """Delete dead letters that were moved here and have not started. Return their number."""
        return cast("int", await self.once("dropMoved", list(ids)))
