"""How far a stream of events has been read, as Spark keeps it: pure rules, no server and no Spark.

An offset describes itself: where each queue's reading ends, where it began in this batch, and what was lost. A batch
that is planned again after a crash reads the same events whatever has been added or trimmed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias, cast

from glidemq_async.functions.history_calls import Bounds

# {"v": 1, "s": {queue: {"i": incarnation, "id": entry, "n": number}}, "b": {queue: the same}, "l": {queue: losses}}
#
# `n` is the number of the next event, `id` the entry that holds the one before it ("0-0": it is not kept). "l" tells
# what was gone when the batch was planned, so that this is noted however often it is planned, and once. Where the batch
# before ended is not asked: of the first one Spark does not keep where it started, and after a crash that may be
# elsewhere. Spark compares offsets as texts, so keys are sorted, and "nothing new" is the start itself. "new": 1 marks
# the offset that a new query starts from.
VERSION: Final = 1
NO_ENTRY: Final = "0-0"
GONE: Final = "the queue was obliterated"
ANOTHER: Final = "it is another queue of the same name by now"
WENT_BACK: Final = "its events went back, as after a failover"
TRIMMED: Final = "they were trimmed before they were read"

# Any: what json.loads returns.
Offset: TypeAlias = dict[str, Any]


class Position(NamedTuple):
    """Before event number `n` of an incarnation; `entry` holds the event before it, or is "0-0"."""

    incarnation: str
    entry: str
    n: int


class Loss(NamedTuple):
    """Events from number `first` up to and without `upto` that cannot be read any more; None: nobody knows how many."""

    queue: str
    why: str
    incarnation: str
    first: int
    upto: int | None

    @property
    def events(self) -> int | None:
        """How many events, None when nobody knows."""
        return None if self.upto is None else self.upto - self.first

    def __str__(self) -> str:
        missed = "an unknown number of events" if self.events is None else f"exactly {self.events} events"
        return f"{missed} of queue {self.queue!r} from number {self.first} on: {self.why}"


class Span(NamedTuple):
    """The events of one queue that a batch reads: from `begin` up to and without `end`."""

    queue: str
    begin: Position
    end: Position


def to_offset(
    ends: Mapping[str, Position],
    begins: Mapping[str, Position] | None = None,
    lost: Iterable[Loss] = (),
    *,
    new: bool = False,
) -> Offset:
    """Return positions, and what was lost before they were planned, as Spark keeps them."""
    offset: Offset = {"b": _plain(begins or {})}
    told: dict[str, list[dict[str, str | int]]] = {}
    for loss in sorted(lost, key=lambda loss: loss.queue):
        told.setdefault(loss.queue, []).append(_told(loss))
    if told:
        offset["l"] = told
    if new:
        offset["new"] = 1
    offset |= {"s": _plain(ends), "v": VERSION}
    return offset


def _plain(positions: Mapping[str, Position]) -> dict[str, dict[str, str | int]]:
    return {
        queue: {"i": position.incarnation, "id": position.entry, "n": position.n}
        for queue, position in sorted(positions.items())
    }


def _told(loss: Loss) -> dict[str, str | int]:
    told: dict[str, str | int] = {"i": loss.incarnation, "n": loss.first, "w": loss.why}
    return told if loss.upto is None else told | {"u": loss.upto}


def ends_of(offset: Offset) -> dict[str, Position]:
    """Return where reading ends. Raises ValueError for an offset of another version."""
    if offset.get("v") != VERSION:
        raise ValueError(
            f"the checkpoint holds offsets of version {offset.get('v')!r}, this is version {VERSION}: read on with the "
            "library that wrote it, or start with a new checkpoint"
        )
    return _positions(offset["s"])


def begins_of(offset: Offset) -> dict[str, Position]:
    """Return where the batch that ends at this offset began, for the queues that it reads."""
    return _positions(offset["b"])


def _positions(stored: object) -> dict[str, Position]:
    found = cast("dict[str, dict[str, Any]]", stored)
    return {queue: Position(one["i"], one["id"], one["n"]) for queue, one in found.items()}


def losses_of(offset: Offset) -> list[Loss]:
    """Return what the batch that ends at this offset does not read, because it was gone when it was planned."""
    told = cast("dict[str, list[dict[str, Any]]]", offset.get("l", {}))
    return [Loss(queue, one["w"], one["i"], one["n"], one.get("u")) for queue, losses in told.items() for one in losses]


def is_new(offset: Offset) -> bool:
    """Whether this is the offset that a query started from, and not one from its checkpoint."""
    return bool(offset.get("new"))


def earliest(bounds: Bounds) -> Position:
    """Return the position before all that is kept."""
    return Position(bounds.incarnation, NO_ENTRY, bounds.first_seq)


def latest(bounds: Bounds) -> Position:
    """Return the position after all that was written."""
    return Position(bounds.incarnation, bounds.last, bounds.total)


def resume(queue: str, known: Position, bounds: Bounds, before: str) -> tuple[Position, list[Loss]]:
    """Return where reading goes on, and what was lost meanwhile.

    before: the entry that holds event `known.n - 1` now; "" when it is not kept.
    """
    if known.incarnation not in ("", bounds.incarnation):
        why = ANOTHER if bounds.incarnation else GONE
        lost = [Loss(queue, why, known.incarnation, known.n, None)]
        if bounds.first_seq:
            lost.append(Loss(queue, TRIMMED, bounds.incarnation, 0, bounds.first_seq))
        return earliest(bounds), lost
    if bounds.total < known.n or (known.entry != NO_ENTRY and before not in ("", known.entry)):
        # Numbers may have been given twice; what has one that was read already is not read again.
        begin = Position(bounds.incarnation, NO_ENTRY, min(known.n, bounds.total))
        return begin, [Loss(queue, WENT_BACK, known.incarnation, known.n, None)]
    if bounds.first_seq > known.n:
        return earliest(bounds), [Loss(queue, TRIMMED, bounds.incarnation, known.n, bounds.first_seq)]
    return known._replace(incarnation=bounds.incarnation), []


def is_gone(known: Position, bounds: Bounds) -> bool:
    """Whether the queue that was read is gone, and no other one of its name has begun."""
    return bounds.total == 0 and known.n > 0


def share(limit: int, lags: Mapping[str, int]) -> dict[str, int]:
    """Split a limit among queues in proportion to what each has to read; never more than that.

    The parts add up to the limit unless there is less to read.
    """
    total = sum(lags.values())
    if total <= limit:
        return dict(lags)
    exact = {queue: lag * limit for queue, lag in lags.items()}
    parts = {queue: part // total for queue, part in exact.items()}
    rest = limit - sum(parts.values())
    for queue in sorted(exact, key=lambda queue: (-(exact[queue] % total), queue))[:rest]:
        parts[queue] += 1
    return parts


def spans(end: Offset) -> list[Span]:
    """Return what the batch that ends at this offset reads: the offset alone tells."""
    ends = ends_of(end)
    return [
        Span(queue, begin, ends[queue])
        for queue, begin in begins_of(end).items()
        if begin.incarnation in ("", ends[queue].incarnation) and begin.n < ends[queue].n
    ]


def cut(span: Span, parts: int) -> list[tuple[int, int]]:
    """Cut a span into ranges of numbers of about the same size, none of them empty."""
    size = span.end.n - span.begin.n
    parts = max(1, min(parts, size))
    marks = [span.begin.n + size * i // parts for i in range(parts + 1)]
    return list(pairwise(marks))
