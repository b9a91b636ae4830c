"""Simulations of a server's event streams and of Spark's calls of a stream, for tests of any order of steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyspark.sql.types import StructType

from glidemq_async.functions.history import Bounds, ByNumber, Located, Sought
from glidemq_async.spark.read.event_partition import EventPartition
from glidemq_async.spark.read.event_planner import EventPlanner
from glidemq_async.spark.read.event_stream import EventStream, UnlimitedEventStream
from glidemq_async.spark.read.event_stream_limited import LimitedEventStream
from glidemq_async.spark.read.offsets import Loss, Offset
from glidemq_async.spark.read.options import ReadOptions, read_options

T = TypeVar("T")

Row = tuple[str, str, int]
"""Queue, incarnation and number of an event."""


@dataclass
class SimulatedQueue:
    """The stored events of one queue."""

    incarnation: str
    total: int = 0
    entries: list[tuple[str, int, int]] = field(default_factory=list)
    """Entry, number of its first event, number of events."""


@dataclass
class World:
    """A simulated server with queues."""

    queues: dict[str, SimulatedQueue] = field(default_factory=dict)
    clock: int = 0
    begun: int = 0
    written: set[Row] = field(default_factory=set)

    def add(self, queue: str, n: int) -> None:
        """Write an entry of n events. Create the queue if it does not exist."""
        if queue not in self.queues:
            self.begun += 1
            self.queues[queue] = SimulatedQueue(f"i{self.begun}")
        one = self.queues[queue]
        self.clock += 1
        one.entries.append((f"{self.clock}-0", one.total, n))
        self.written |= {(queue, one.incarnation, number) for number in range(one.total, one.total + n)}
        one.total += n

    def trim(self, queue: str, entries: int) -> None:
        """Trim from the head; the newest entry stays."""
        if queue in self.queues:
            kept = self.queues[queue].entries
            del kept[: min(entries, len(kept) - 1)]

    def obliterate(self, queue: str) -> None:
        """Remove a queue and its events."""
        self.queues.pop(queue, None)

    def locate(self, queue: str, sought: Sequence[Sought]) -> tuple[Bounds, list[Located]]:
        """Return the same reply as the server function."""
        one = self.queues.get(queue, SimulatedQueue(""))
        first = one.entries[0] if one.entries else ("", one.total, 0)
        bounds = Bounds(one.incarnation, one.total, first[0], first[1], one.entries[-1][0] if one.entries else "0-0")
        found: list[Located] = []
        for one_sought in sought:
            assert isinstance(one_sought, ByNumber)
            n = max(one_sought.number, first[1])
            holder = next(((entry, seq) for entry, seq, size in one.entries if seq <= n < seq + size), ("", one.total))
            found.append(Located(*holder))
        return bounds, found

    def read(self, part: EventPartition) -> tuple[list[Row], list[Loss]]:
        """Read a partition like a task."""
        one = self.queues.get(part.queue, SimulatedQueue(""))
        same = one.incarnation == part.incarnation
        first = max(part.first, one.entries[0][1]) if same and one.entries else part.stop
        first = min(first, part.stop)
        if same and part.entry in {entry for entry, _, _ in one.entries}:
            assert part.entry == one.entries[0][0] or any(
                seq <= part.first <= seq + n for entry, seq, n in one.entries if entry == part.entry
            )
        rows = [(part.queue, part.incarnation, number) for number in range(first, part.stop)]
        lost = [Loss(part.queue, "", part.incarnation, part.first, first)] if first > part.first else []
        return rows, lost


class SimulatedPlanner(EventPlanner):
    """Planner of the simulated server."""

    def __init__(self, options: ReadOptions, world: World, noted: dict[tuple[str, str, int], int | None]) -> None:
        self.options = options
        self._world = world
        self._noted = noted

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return finished(work)

    async def for_each_queue(self, queues: Iterable[str], work: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        return {queue: await work(queue) for queue in queues}

    async def queue_names(self) -> list[str]:
        return sorted(self._world.queues) if self.options.pattern else list(self.options.queues)

    async def locate(self, queue: str, sought: Sequence[Sought] = ()) -> tuple[Bounds, list[Located]]:
        return self._world.locate(queue, sought)

    async def note(self, found: Iterable[Loss]) -> None:
        for loss in found:
            key = (loss.queue, loss.incarnation, loss.first)
            former = self._noted.get(key, 0)
            self._noted[key] = None if former is None or loss.stop is None else max(former, loss.stop)


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits. An event loop for each call would take most of the time."""
    try:
        work.send(None)
    except StopIteration as end:
        found: T = end.value
        return found
    raise AssertionError("it waits")


class Crash(Exception):
    """The driver is killed here."""


@dataclass
class Query:
    """A streaming query with a checkpoint, as Spark runs it."""

    world: World
    options: dict[str, str]
    old: bool = False
    """True if Spark is older than 4.2."""
    learns: bool = True
    """True if this older version plans its last batch again after a restart."""
    log: list[Offset] = field(default_factory=list)
    committed: int = 0
    sink: dict[int, list[Row]] = field(default_factory=dict)
    losses: dict[tuple[str, str, int], int | None] = field(default_factory=dict)
    _stream: EventStream | None = None

    def planner(self) -> EventPlanner:
        """Return a planner of the simulated server."""
        return SimulatedPlanner(read_options(self.options, streaming=True), self.world, self.losses)

    def restart(self, **options: str) -> None:
        """Start another run with other options."""
        self.options |= options
        self._stream = None

    def stream(self) -> EventStream:
        """The reader of this run. A restart creates another one."""
        if self._stream is None:
            kind = UnlimitedEventStream if self.old else LimitedEventStream
            self._stream = kind(read_options(self.options, streaming=True), StructType(), planner=self.planner)
            if self.old and self.learns and self.committed:
                last = self.log[self.committed - 1]
                assert self._stream.partitions(last, last) == []
        return self._stream

    def step(self, limit: int | None = None, crash: str = "") -> bool:
        """Run one batch or the rest of one. Return True if there was one."""
        try:
            return self._step(limit, crash)
        except Crash:
            self._stream = None
            return True

    def _step(self, limit: int | None, crash: str) -> bool:
        stream = self.stream()
        batch = self.committed
        if len(self.log) == batch:
            end = self._latest(stream, self._start(stream, batch), limit)
            start = self._start(stream, batch)
            if end == start:
                return False
            self.log.append(end)
        self._stop_at("planned", crash)
        start, end = self._start(stream, batch), self.log[batch]
        rows: list[Row] = []
        for part in stream.partitions(start, end):
            assert isinstance(part, EventPartition)
            read, lost = self.world.read(part)
            rows += read
            finished(self.planner().note(lost))
            self._stop_at("read", crash)
        self.sink[batch] = rows
        self._stop_at("written", crash)
        self.committed += 1
        self._stop_at("committed", crash)
        return True

    def _start(self, stream: EventStream, batch: int) -> Offset:
        return self.log[batch - 1] if batch else stream.initialOffset()

    def _latest(self, stream: EventStream, start: Offset, limit: int | None) -> Offset:
        if isinstance(stream, UnlimitedEventStream):
            return stream.latestOffset()
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        assert isinstance(stream, LimitedEventStream)
        return stream.latestOffset(start, ReadAllAvailable() if limit is None else ReadMaxRows(limit))

    def _stop_at(self, point: str, crash: str) -> None:
        if point == crash:
            raise Crash

    def drain(self) -> None:
        """Read all unread events."""
        for _ in range(1_000):
            if not self.step():
                return
        raise AssertionError("the query never comes to an end")

    def rows(self) -> list[Row]:
        """Return all rows of the sink, including repetitions."""
        return [row for rows in self.sink.values() for row in rows]
