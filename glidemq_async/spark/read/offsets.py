"""Offsets: the positions of a stream of events in the form that Spark stores in its checkpoint.

This module contains pure functions, without calls of the server or Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias, cast

from glidemq_async.functions.history import Bounds

# The form of an offset:
#
#   {"v": 1, "s": {queue: {"i": incarnation, "id": entry, "n": number}}, "b": {queue: the same}, "l": {queue: losses}}
#
# "s" contains the ends of the batch and "b" its begins. `n` is the number of the next event, and `id` the entry with
# the event before it ("0-0" if that entry is not stored). "l" contains the losses that were found when the end was
# computed. "new": 1 marks the offset at which a new query starts.
#
# Why does an end contain the begin of its batch? Spark writes the end to its log and then plans the batch, perhaps
# several times, perhaps in another process after a crash. Each plan must read exactly the same events, otherwise a sink
# that skips a known batch loses events or stores them twice. The end of the previous batch cannot replace "b":
# Spark does not store the start of the first batch, and after a crash it may pass another one. For the same reason the
# losses are part of the offset. Events that are trimmed between two plans would otherwise become a second loss.
#
# Spark compares offsets as JSON strings. Keys are therefore always in the same order, and "nothing new" is the
# unchanged start offset.
VERSION: Final = 1
NO_ENTRY: Final = "0-0"
GONE: Final = "the queue was obliterated"
RECREATED: Final = "the queue was recreated under the same name"
WENT_BACK: Final = "the server has lost its newest events, for example in a failover"
TRIMMED: Final = "they were trimmed before they were read"

# Any: what json.loads returns.
Offset: TypeAlias = dict[str, Any]


class Position(NamedTuple):
    """The position before event number `n` of an incarnation. `entry` contains the event before it, or is "0-0"."""

    incarnation: str
    entry: str
    n: int


class Loss(NamedTuple):
    """The events from number `first` to `stop - 1`, which cannot be read any more.

    If `stop` is None, the number is unknown.
    """

    queue: str
    why: str
    incarnation: str
    first: int
    stop: int | None

    @property
    def events(self) -> int | None:
        """Number of lost events, or None if it is unknown."""
        return None if self.stop is None else self.stop - self.first

    def __str__(self) -> str:
        missed = "an unknown number of events" if self.events is None else f"exactly {self.events} events"
        return f"{missed} of queue {self.queue!r} are lost, from number {self.first} on: {self.why}"


class Span(NamedTuple):
    """The events of one queue that a batch reads: from `begin` to the event before `end`."""

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
    """Return the offset of these positions and losses."""
    offset: Offset = {"b": _stored_positions(begins or {})}
    stored: dict[str, list[dict[str, str | int]]] = {}
    for loss in sorted(lost, key=lambda loss: loss.queue):
        stored.setdefault(loss.queue, []).append(_stored_loss(loss))
    if stored:
        offset["l"] = stored
    if new:
        offset["new"] = 1
    offset |= {"s": _stored_positions(ends), "v": VERSION}
    return offset


def _stored_positions(positions: Mapping[str, Position]) -> dict[str, dict[str, str | int]]:
    return {
        queue: {"i": position.incarnation, "id": position.entry, "n": position.n}
        for queue, position in sorted(positions.items())
    }


def _stored_loss(loss: Loss) -> dict[str, str | int]:
    stored: dict[str, str | int] = {"i": loss.incarnation, "n": loss.first, "w": loss.why}
    return stored if loss.stop is None else stored | {"u": loss.stop}


def ends_of(offset: Offset) -> dict[str, Position]:
    """Return the ends of an offset, by queue. Raises ValueError for an offset of another version."""
    if offset.get("v") != VERSION:
        raise ValueError(
            f"the checkpoint contains offsets of version {offset.get('v')!r}, but this library reads version "
            f"{VERSION}; continue with the library version that wrote it, or use a new checkpoint"
        )
    return _positions(offset["s"])


def begins_of(offset: Offset) -> dict[str, Position]:
    """Return the begins of the batch that ends at this offset, for the queues that it reads."""
    return _positions(offset["b"])


def _positions(stored: object) -> dict[str, Position]:
    found = cast("dict[str, dict[str, Any]]", stored)
    return {queue: Position(one["i"], one["id"], one["n"]) for queue, one in found.items()}


def losses_of(offset: Offset) -> list[Loss]:
    """Return the losses that were found when this offset was computed."""
    stored = cast("dict[str, list[dict[str, Any]]]", offset.get("l", {}))
    return [
        Loss(queue, one["w"], one["i"], one["n"], one.get("u")) for queue, losses in stored.items() for one in losses
    ]


def is_new(offset: Offset) -> bool:
    """Return True for the offset at which a new query starts."""
    return bool(offset.get("new"))


def earliest(bounds: Bounds) -> Position:
    """Return the position before the first stored event."""
    return Position(bounds.incarnation, NO_ENTRY, bounds.first_seq)


def latest(bounds: Bounds) -> Position:
    """Return the position after the last event."""
    return Position(bounds.incarnation, bounds.last, bounds.total)


def resume(queue: str, known: Position, bounds: Bounds, before: str) -> tuple[Position, list[Loss]]:
    """Return the position at which reading continues, and the losses since the known position.

    before: the entry that contains event `known.n - 1` now; "" if it is not stored.
    """
    if known.incarnation not in ("", bounds.incarnation):
        why = RECREATED if bounds.incarnation else GONE
        lost = [Loss(queue, why, known.incarnation, known.n, None)]
        if bounds.first_seq:
            lost.append(Loss(queue, TRIMMED, bounds.incarnation, 0, bounds.first_seq))
        return earliest(bounds), lost
    # Two signs of lost events: there are fewer events than were read, or the entry with the last read event differs.
    # The second sign matters when the new primary has already assigned the lost numbers again.
    if bounds.total < known.n or (known.entry != NO_ENTRY and before not in ("", known.entry)):
        # After a failover the new primary assigns some numbers a second time. Events whose number was read already are
        # skipped: to read them again would break "each event once" for sinks that use the number as key.
        begin = Position(bounds.incarnation, NO_ENTRY, min(known.n, bounds.total))
        return begin, [Loss(queue, WENT_BACK, known.incarnation, known.n, None)]
    if bounds.first_seq > known.n:
        return earliest(bounds), [Loss(queue, TRIMMED, bounds.incarnation, known.n, bounds.first_seq)]
    return known._replace(incarnation=bounds.incarnation), []


def is_gone(known: Position, bounds: Bounds) -> bool:
    """Return True if the queue was obliterated and no queue of this name exists."""
    return bounds.total == 0 and known.n > 0


def share(limit: int, lags: Mapping[str, int]) -> dict[str, int]:
    """Divide a limit among queues in proportion to their unread events.

    The parts add up to the limit, or to the number of unread events if that is smaller.
    """
    total = sum(lags.values())
    if total <= limit:
        return dict(lags)
    # Largest remainder: each queue gets the whole part of its share, and the rest goes to the largest fractions.
    # Integers avoid rounding errors, by which the parts could exceed the limit.
    exact = {queue: lag * limit for queue, lag in lags.items()}
    parts = {queue: part // total for queue, part in exact.items()}
    rest = limit - sum(parts.values())
    for queue in sorted(exact, key=lambda queue: (-(exact[queue] % total), queue))[:rest]:
        parts[queue] += 1
    return parts


def spans(end: Offset) -> list[Span]:
    """Return the events that the batch with this end reads."""
    ends = ends_of(end)
    return [
        Span(queue, begin, ends[queue])
        for queue, begin in begins_of(end).items()
        if begin.incarnation in ("", ends[queue].incarnation) and begin.n < ends[queue].n
    ]


def cut(span: Span, parts: int) -> list[tuple[int, int]]:
    """Divide a span into ranges of numbers of about the same size, none of them empty."""
    size = span.end.n - span.begin.n
    parts = max(1, min(parts, size))
    marks = [span.begin.n + size * i // parts for i in range(parts + 1)]
    return list(pairwise(marks))
