"""Typed calls of `history.lua`: positions of events, progress of readers, and the events that they missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

from glidemq_async.functions.calling import Calls, text

__all__ = ["Bounds", "ByEntry", "ByNumber", "ByTime", "HistoryCalls", "Located", "LossRow", "ReaderRow", "Sought"]


class ByNumber(NamedTuple):
    """The entry with the event of this number, or the oldest entry if that is younger."""

    number: int


class ByTime(NamedTuple):
    """The first entry of this time (ms) or a later one."""

    ms: int


class ByEntry(NamedTuple):
    """The first entry from this id on."""

    entry: str


Sought: TypeAlias = ByNumber | ByTime | ByEntry
"""An event that a reader looks for."""


class Bounds(NamedTuple):
    """The range of stored events of a queue; `first` is "" and `last` "0-0" when there are none."""

    incarnation: str
    total: int
    """The number of events ever written, which is also the number of the next event."""
    first: str
    first_seq: int
    last: str


class Located(NamedTuple):
    """An entry and the number of its first event; "" and the total when there is none."""

    entry: str
    seq: int


class ReaderRow(NamedTuple):
    """The stored progress of a reader: it has read all events before number n of this incarnation."""

    name: str
    incarnation: str
    n: int
    noted_ms: int


class LossRow(NamedTuple):
    """Events from `first` up to but not including `stop` that a reader missed; None: their number is unknown."""

    noted_ms: int
    reader: str
    why: str
    incarnation: str
    first: int
    stop: int | None


_CODES: Mapping[type[Sought], str] = {ByNumber: "n", ByTime: "t", ByEntry: "i"}


class HistoryCalls(Calls):
    """Calls of the functions in `history.lua`."""

    __slots__ = ()

    async def locate(self, sought: Sequence[Sought] = ()) -> tuple[Bounds, list[Located]]:
        """Return the range of stored events and the position of each sought event, both at one instant."""
        args: list[int | str] = []
        for one in sought:
            args += _CODES[type(one)], one[0]
        reply = cast("list[object]", await self._caller.read("locateEvents", args))
        incarnation, total, first, seq, last, *found = reply
        bounds = Bounds(text(incarnation), cast("int", total), text(first), cast("int", seq), text(last))
        pairs = cast("list[tuple[bytes, int]]", found)
        return bounds, [Located(entry.decode(), number) for entry, number in pairs]

    async def note_reader(self, name: str, incarnation: str, n: int, *, hold: bool) -> None:
        """Store the progress of a reader. `hold` keeps the events that it has not read for longer."""
        # Without a number: the call stores a state, so a repeated one changes nothing. The server ignores a note of an
        # incarnation that is over, so a delayed copy cannot move the reader of a new queue.
        await self._caller.call("noteReader", [name, incarnation, n, int(hold)])

    async def note_loss(self, name: str, why: str, incarnation: str, first: int, stop: int | None) -> None:
        """Store events that a reader missed. The same loss is stored once."""
        # The loss itself is its identity, so a batch that Spark plans twice stores it once.
        args: list[str | int] = [name, why, incarnation, first, "" if stop is None else stop]
        await self._caller.call("noteLoss", args)

    async def list_readers(self) -> list[ReaderRow]:
        """Return the readers whose progress is stored."""
        rows = cast("list[list[object]]", await self._caller.read("listReaders"))
        return [ReaderRow(text(name), text(mark), cast("int", n), cast("int", ms)) for name, mark, n, ms in rows]

    async def list_losses(self) -> list[LossRow]:
        """Return the last 1,000 losses of readers, the oldest first."""
        rows = cast("list[list[object]]", await self._caller.read("listLosses"))
        return [_loss(cast("int", ms), [text(part) for part in parts]) for ms, *parts in rows]


def _loss(ms: int, parts: list[str]) -> LossRow:
    name, why, incarnation, first, stop = parts
    return LossRow(ms, name, why, incarnation, int(first), int(stop) if stop else None)
