"""Planner of event reads: compute positions and partitions from the options and the events on the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

from glidemq_async._internal.waits import finish_all
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.history import Bounds, ByEntry, ByNumber, ByTime, Located, Sought
from glidemq_async.spark.connection import Connection, connection_to
from glidemq_async.spark.read import offsets
from glidemq_async.spark.read.event_partition import EventPartition, loss_error
from glidemq_async.spark.read.offsets import NO_ENTRY, Loss, Position, Span
from glidemq_async.spark.read.options import OffsetSpec, ReadOptions, split_offset
from glidemq_async.storage import Storage
from glidemq_async.storage.redis.cluster import ClusterStorage
from glidemq_async.stored.names import QueueKeys

T = TypeVar("T")

MAX_CONCURRENT: Final = 50
"""Maximum number of queues that are read at the same time."""


class EventPlanner:
    """Planner of the reads of one reader. Spark calls it on the driver."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._connection: Connection = connection_to(options.url)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self._connection.run(work)

    def functions(self, queue: str) -> Functions:
        """Return callers of a queue's functions."""
        return self._connection.functions(QueueKeys(self.options.prefix, queue))

    def loss_error(self, loss: Loss) -> Exception:
        """Return the error for a loss, for readers with failOnDataLoss=true."""
        return loss_error(loss, self.options.url)

    async def queue_names(self) -> list[str]:
        """Return the names of the queues to read: the named ones, or all existing ones that match the pattern."""
        pattern = self.options.pattern
        if pattern is None:
            return list(self.options.queues)
        storage = self._connection.storage
        if isinstance(storage, ClusterStorage):
            raise ValueError(  # noqa: TRY004 - the option is wrong, not a type
                f"subscribePattern={pattern!r} cannot be used with the cluster {storage.url}, whose keys cannot be "
                "searched; name the queues with subscribe"
            )
        return await self._matching(storage, pattern)

    async def _matching(self, storage: Storage, pattern: str) -> list[str]:
        head, tail = f"{self.options.prefix}:{{", "}:meta"
        found: set[str] = set()
        async for raw in storage.scan(f"{_literal(head)}*{tail}"):
            name = raw.decode()[len(head) : -len(tail)]
            if fnmatchcase(name, pattern):
                found.add(name)
        return sorted(found)

    async def locate(self, queue: str, sought: Sequence[Sought] = ()) -> tuple[Bounds, list[Located]]:
        """Return the bounds of a queue's stored events, and the entries of the sought events."""
        return await self.functions(queue).history.locate(sought)

    async def check_known(self, queues: Iterable[str]) -> None:
        """Raise ValueError for a queue that does not exist."""
        found = await self.for_each_queue(queues, self.locate)
        unknown = sorted(queue for queue, (bounds, _) in found.items() if not bounds.incarnation)
        if unknown:
            raise ValueError(
                f"there is no queue {unknown[0]!r} with prefix {self.options.prefix!r} on "
                f"{self._connection.storage.url}; correct the option subscribe, prefix or url"
            )

    async def for_each_queue(self, queues: Iterable[str], work: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        """Call `work` for each queue, for up to 50 of them concurrently.

        Raises the error of the first queue with one.
        """
        gate = asyncio.Semaphore(MAX_CONCURRENT)

        async def one(queue: str) -> T:
            async with gate:
                return await work(queue)

        names = list(queues)
        # Wait for all of them, even after an error. The loop only runs inside `Connection.run`, so a coroutine that is
        # left behind would continue during the next call of another reader.
        return dict(zip(names, await finish_all(map(one, names)), strict=True))

    async def positions(
        self, queues: Iterable[str], wanted: OffsetSpec | Mapping[str, OffsetSpec], otherwise: str
    ) -> dict[str, Position]:
        """Return the position of each queue that an option defines; see `ReadOptions.starting`."""
        names = list(queues)
        given: Mapping[str, OffsetSpec] = wanted if isinstance(wanted, Mapping) else dict.fromkeys(names, wanted)
        strange = given.keys() - set(names)
        if strange:
            raise ValueError(f"the offsets contain the queue {min(strange)!r}, which is not read; add it to subscribe")
        return await self.for_each_queue(names, lambda queue: self._position(queue, given.get(queue, otherwise)))

    async def _position(self, queue: str, offset: OffsetSpec) -> Position:
        if offset == "earliest" or offset == "latest":
            bounds, _ = await self.locate(queue)
            return offsets.earliest(bounds) if offset == "earliest" else offsets.latest(bounds)
        if isinstance(offset, int):
            return await self.position_at(queue, offset)
        if isinstance(offset, tuple):
            _, (found,) = await self.locate(queue, [ByTime(offset[0])])
            return await self.position_at(queue, found.seq)
        parts = split_offset(offset)
        entry, index = parts or ("", 0)
        _, (found,) = await self.locate(queue, [ByEntry(entry)])
        return await self.position_at(queue, found.seq + (index if found.entry == entry else 0))

    async def position_at(self, queue: str, n: int) -> Position:
        """Return the position before event number n."""
        bounds, (found,) = await self.locate(queue, [ByNumber(max(0, n - 1))])
        if n > bounds.total:
            raise ValueError(
                f"queue {queue!r} has no event number {n} yet, only {bounds.total} events; use a smaller number or "
                "latest"
            )
        return Position(bounds.incarnation, found.entry if found.entry and found.seq < n else NO_ENTRY, n)

    async def resume_position(self, queue: str, known: Position | None) -> tuple[Bounds, Position, list[Loss]]:
        """Return a queue's bounds, the position at which reading continues, and the losses before it.

        Without a known position the queue is new, and reading starts at its earliest event.
        """
        if known is None:
            bounds, _ = await self.locate(queue)
            return bounds, offsets.earliest(bounds), []
        # One call reads the bounds and the entry of the event before the position, so both describe the same instant.
        # The entry is the proof that the position is still valid: after a failover to a replica that lacks events, the
        # numbers continue from a smaller value, and the same number may belong to another entry.
        bounds, (found,) = await self.locate(queue, [ByNumber(max(0, known.n - 1))])
        before = found.entry if found.entry and found.seq < known.n else ""
        if offsets.is_gone(known, bounds):
            if self.options.fail_on_loss:
                raise self.loss_error(Loss(queue, offsets.GONE, known.incarnation, known.n, None))
            # The loss is reported when a queue of this name is created again. Until then nothing shows that the reader
            # missed events, and reporting it in every batch would count it many times.
            return bounds, known, []
        begin, losses = offsets.resume(queue, known, bounds, before)
        if losses and self.options.fail_on_loss:
            raise self.loss_error(losses[0])
        return bounds, begin, losses

    async def note(self, found: Iterable[Loss]) -> None:
        """Store losses on the server, where kind=losses reads them. Storing a loss twice has no effect."""
        name = self.options.position_name or ""
        for loss in found:
            functions = self.functions(loss.queue)
            await functions.history.note_loss(name, loss.why, loss.incarnation, loss.first, loss.stop)

    async def partitions(self, spans: Sequence[Span]) -> list[EventPartition]:
        """Divide spans into the partitions that single tasks read."""
        total = sum(span.end.n - span.begin.n for span in spans)
        by_queue = {span.queue: span for span in spans}

        async def cut(queue: str) -> list[EventPartition]:
            span = by_queue[queue]
            return await self._cut(span, self._parts(span.end.n - span.begin.n, total))

        return [partition for found in (await self.for_each_queue(by_queue, cut)).values() for partition in found]

    def _parts(self, size: int, total: int) -> int:
        # Rounded up, so that small queues get a task too. The number of tasks may exceed minPartitions a little.
        parts = -(-self.options.min_partitions * size // total)
        if self.options.max_records is not None:
            parts = max(parts, -(-size // self.options.max_records))
        return max(1, parts)

    async def _cut(self, span: Span, parts: int) -> list[EventPartition]:
        ranges = offsets.cut(span, parts)
        entries = [span.begin.entry]
        if len(ranges) > 1:
            _, found = await self.locate(span.queue, [ByNumber(first) for first, _ in ranges[1:]])
            entries += [one.entry or span.begin.entry for one in found]
        return [
            EventPartition(span.queue, span.end.incarnation, entry, first, stop, span.end.entry)
            for entry, (first, stop) in zip(entries, ranges, strict=True)
        ]


def _literal(text: str) -> str:
    """Escape the characters that are wildcards in a pattern of store keys."""
    return "".join(f"\\{character}" if character in "*?[]\\^-" else character for character in text)
