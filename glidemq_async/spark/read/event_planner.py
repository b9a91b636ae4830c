"""Which events a batch reads: positions from what a user asks for and what the server holds. For the planner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

from glidemq_async.functions.callers import Functions
from glidemq_async.functions.history_calls import Bounds, Located, Sought
from glidemq_async.spark.connection import Connection, connection_to
from glidemq_async.spark.read import offsets
from glidemq_async.spark.read.event_partition import EventPartition, lost
from glidemq_async.spark.read.offsets import NO_ENTRY, Loss, Position, Span
from glidemq_async.spark.read.options import Place, ReadOptions, split_offset
from glidemq_async.storage.redis.cluster import ClusterStorage
from glidemq_async.stored.names import QueueKeys

T = TypeVar("T")

AT_ONCE: Final = 50
"""How many queues are asked at the same time."""


class EventPlanner:
    """Asks the server about the events of the queues that a reader is to read."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._connection: Connection = connection_to(options.url)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self._connection.run(work)

    def functions(self, queue: str) -> Functions:
        """Return callers of a queue's functions."""
        return self._connection.functions(QueueKeys(self.options.prefix, queue))

    def lost(self, loss: Loss) -> Exception:
        """Return the error for a loss that the reader does not put up with."""
        return lost(loss, self.options.url)

    async def queue_names(self) -> list[str]:
        """Return the queues that are read now: those that were named, or all there are that fit the pattern."""
        pattern = self.options.pattern
        if pattern is None:
            return list(self.options.queues)
        storage = self._connection.storage
        if isinstance(storage, ClusterStorage):
            raise ValueError(  # noqa: TRY004 - it is the option that does not fit
                f"subscribePattern={pattern!r} needs all queues of {storage.url}, and a cluster cannot be searched for "
                "them: name the queues with subscribe"
            )
        head, tail = f"{self.options.prefix}:{{", "}:meta"
        found: set[str] = set()
        async for raw in storage.scan(f"{_literal(head)}*{tail}"):
            name = raw.decode()[len(head) : -len(tail)]
            if fnmatchcase(name, pattern):
                found.add(name)
        return sorted(found)

    async def locate(self, queue: str, sought: Sequence[Sought] = ()) -> tuple[Bounds, list[Located]]:
        """Return what is kept of a queue's events, and where the sought ones stand."""
        return await self.functions(queue).locate_events(sought)

    async def check_known(self, queues: Iterable[str]) -> None:
        """Raise ValueError for a queue that does not exist."""
        found = await self.of_all(queues, self.locate)
        unknown = sorted(queue for queue, (bounds, _) in found.items() if not bounds.incarnation)
        if unknown:
            raise ValueError(
                f"there is no queue {unknown[0]!r} with prefix {self.options.prefix!r} on "
                f"{self._connection.storage.url}: correct the option subscribe (or prefix, or url)"
            )

    async def of_all(self, queues: Iterable[str], work: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        """Do something with each queue, with not too many at once. Raises what was raised first."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(queue: str) -> T:
            async with gate:
                return await work(queue)

        names = list(queues)
        # All are waited for: what is left behind would go on with the next call.
        results = await asyncio.gather(*map(one, names), return_exceptions=True)
        found: dict[str, T] = {}
        for queue, result in zip(names, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            found[queue] = result
        return found

    async def positions(
        self, queues: Iterable[str], wanted: Place | Mapping[str, Place], otherwise: str
    ) -> dict[str, Position]:
        """Return the position of each queue that an option asks for; see `ReadOptions.starting`."""
        names = list(queues)
        places: Mapping[str, Place] = wanted if isinstance(wanted, Mapping) else dict.fromkeys(names, wanted)
        strange = places.keys() - set(names)
        if strange:
            raise ValueError(
                f"a position is given for the queue {min(strange)!r}, which is not read: add it to subscribe"
            )
        return await self.of_all(names, lambda queue: self._position(queue, places.get(queue, otherwise)))

    async def _position(self, queue: str, place: Place) -> Position:
        if place == "earliest" or place == "latest":
            bounds, _ = await self.locate(queue)
            return offsets.earliest(bounds) if place == "earliest" else offsets.latest(bounds)
        if isinstance(place, int):
            return await self.position_at(queue, place)
        if isinstance(place, tuple):
            _, (found,) = await self.locate(queue, [("t", place[0])])
            return await self.position_at(queue, found.seq)
        parts = split_offset(place)
        entry, index = parts or ("", 0)
        _, (found,) = await self.locate(queue, [("i", entry)])
        return await self.position_at(queue, found.seq + (index if found.entry == entry else 0))

    async def position_at(self, queue: str, n: int) -> Position:
        """Return the position before event number n."""
        bounds, (found,) = await self.locate(queue, [("n", max(0, n - 1))])
        if n > bounds.total:
            raise ValueError(f"asked for event number {n} of queue {queue!r}, found {bounds.total}: it is yet to come")
        return Position(bounds.incarnation, found.entry if found.entry and found.seq < n else NO_ENTRY, n)

    async def resumed(self, queue: str, known: Position | None) -> tuple[Bounds, Position, list[Loss]]:
        """Return what is kept, where reading goes on, and what was lost. A queue that is new starts at its earliest."""
        if known is None:
            bounds, _ = await self.locate(queue)
            return bounds, offsets.earliest(bounds), []
        bounds, (found,) = await self.locate(queue, [("n", max(0, known.n - 1))])
        before = found.entry if found.entry and found.seq < known.n else ""
        if offsets.is_gone(known, bounds):
            if self.options.fail_on_loss:
                raise self.lost(Loss(queue, offsets.GONE, known.incarnation, known.n, None))
            return bounds, known, []  # what was lost is told when a queue of this name begins again
        begin, losses = offsets.resume(queue, known, bounds, before)
        if losses and self.options.fail_on_loss:
            raise self.lost(losses[0])
        return bounds, begin, losses

    async def note(self, found: Iterable[Loss]) -> None:
        """Write losses down where kind=losses reads them."""
        name = self.options.position_name or ""
        for loss in found:
            functions = self.functions(loss.queue)
            await functions.note_loss(name, loss.why, loss.incarnation, loss.first, loss.upto)

    async def partitions(self, spans: Sequence[Span]) -> list[EventPartition]:
        """Cut spans into what single tasks read."""
        total = sum(span.end.n - span.begin.n for span in spans)
        by_queue = {span.queue: span for span in spans}

        async def cut(queue: str) -> list[EventPartition]:
            span = by_queue[queue]
            return await self._cut(span, self._parts(span.end.n - span.begin.n, total))

        return [partition for found in (await self.of_all(by_queue, cut)).values() for partition in found]

    def _parts(self, size: int, total: int) -> int:
        parts = -(-self.options.min_partitions * size // total)
        if self.options.max_records is not None:
            parts = max(parts, -(-size // self.options.max_records))
        return max(1, parts)

    async def _cut(self, span: Span, parts: int) -> list[EventPartition]:
        ranges = offsets.cut(span, parts)
        entries = [span.begin.entry]
        if len(ranges) > 1:
            _, found = await self.locate(span.queue, [("n", first) for first, _ in ranges[1:]])
            entries += [one.entry or span.begin.entry for one in found]
        return [
            EventPartition(span.queue, span.end.incarnation, entry, first, upto, span.end.entry)
            for entry, (first, upto) in zip(entries, ranges, strict=True)
        ]


def _literal(text: str) -> str:
    """Escape what a key pattern would read as a wildcard."""
    return "".join(f"\\{character}" if character in "*?[]\\^-" else character for character in text)
