"""kind=events as a stream, which a query continues from its checkpoint.

offsets.py explains the contents of the offsets. Before Spark 4.2, Spark asks a source for the latest offset without
passing the position of the query, so `UnlimitedEventStream` remembers the position itself.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from glidemq_async.functions.history import Bounds
from glidemq_async.spark.read import offsets
from glidemq_async.spark.read.event_partition import read_events
from glidemq_async.spark.read.event_planner import EventPlanner
from glidemq_async.spark.read.offsets import Offset, Position
from glidemq_async.spark.read.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

_MakePlanner = Callable[[], EventPlanner]


class EventStream(DataSourceStreamReader):
    """Base of the streams for all versions of Spark. Spark pickles it for tasks before it calls any other method."""

    def __init__(
        self, options: ReadOptions, schema: StructType, planner: Callable[[], EventPlanner] | None = None
    ) -> None:
        self._options = options
        self._schema = schema
        self._planner = planner or partial(EventPlanner, options)
        self._start: Offset | None = None
        self._targets: dict[str, Position] | None = None
        self._planned_at: float | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the start of a new query. Spark calls this twice, and both calls must return the same offset."""
        if self._start is None:
            planner = self._planner()
            self._start = offsets.to_offset(planner.run(self._starts(planner)), new=True)
        return self._start

    async def _starts(self, planner: EventPlanner) -> dict[str, Position]:
        return await planner.positions(await planner.queue_names(), self._options.starting, "earliest")

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Plan one batch. Only `end` determines the events of a batch, so planning it again gives the same events."""
        return self._plan(self._planner(), start, end)

    def _plan(self, planner: EventPlanner, start: Offset, end: Offset) -> list[InputPartition]:
        if start == end:
            # Spark plans an empty batch this way. `end` describes the batch before it, which must not be read again.
            return []

        async def plan() -> list[InputPartition]:
            await planner.note(offsets.losses_of(end))
            return [*await planner.partitions(offsets.spans(end))]

        return planner.run(plan())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition, in a task."""
        return read_events(partition, self._options, self._schema)

    def commit(self, end: Offset) -> None:
        """Store the position of the reader in the queues, if it has a name."""
        # Spark calls this after it has finished the batch. With `retain`, the server keeps unread events longer, and
        # the position decides which ones are unread. A position that is stored earlier would release events of a batch
        # that may still be planned again.
        name = self._options.position_name
        if name is None:
            return
        planner = self._planner()

        async def publish() -> None:
            for queue, position in offsets.ends_of(end).items():
                functions = planner.functions(queue)
                await functions.history.note_reader(name, position.incarnation, position.n, hold=self._options.retain)

        planner.run(publish())

    async def _advance(self, planner: EventPlanner, start: Offset, limit: int | None) -> Offset:
        """Return the end of the batch that begins at `start`, or `start` itself if there is nothing to read."""
        known = offsets.ends_of(start)
        names = dict.fromkeys([*known, *await planner.queue_names()])
        # A run with availableNow ends at its targets. A queue that was created later has no target, and reading it
        # would prolong the run.
        if self._targets is not None:
            names = {queue: None for queue in names if queue in known or queue in self._targets}
        found = await planner.for_each_queue(names, lambda queue: planner.resume_position(queue, known.get(queue)))
        begins = {queue: begin for queue, (_, begin, _) in found.items()}
        stop = {queue: self._stop_number(queue, begins[queue], bounds) for queue, (bounds, _, _) in found.items()}
        lags = {queue: stop[queue] - begin.n for queue, begin in begins.items()}
        lost = {queue: losses for queue, (_, _, losses) in found.items() if losses}
        # Spark starts a batch for every offset that differs from the start. Returning `start` itself is the only way to
        # report that there is nothing to read.
        if not any(lags.values()) and not lost:
            return start
        if self._is_too_little(sum(lags.values())):
            return start
        # A queue with losses must be part of the batch even if its share of the limit is 0: its end records the losses,
        # and they must be stored before reading continues after them.
        parts = lags if limit is None else offsets.share(limit, lags)
        ends = dict(known)
        for queue, (bounds, begin, _) in found.items():
            if parts[queue]:
                ends[queue] = await _end(planner, queue, begin.n + parts[queue], bounds)
            elif queue in lost or queue not in known:
                ends[queue] = begin
        moved = {queue: begin for queue, begin in begins.items() if parts[queue] or queue in lost}
        self._planned_at = monotonic()
        return offsets.to_offset(ends, moved, chain(*lost.values()))

    def _stop_number(self, queue: str, begin: Position, bounds: Bounds) -> int:
        """Return the number of the first event that must not be read yet."""
        if offsets.is_gone(begin, bounds):
            return begin.n
        if self._targets is None:
            return bounds.total
        target = self._targets.get(queue)
        if target is None or target.incarnation != bounds.incarnation:
            return begin.n
        return max(begin.n, min(bounds.total, target.n))

    def _is_too_little(self, rows: int) -> bool:
        """Return True if a batch should wait for more events. A run with availableNow never waits."""
        least = self._options.min_offsets
        if least is None or self._targets is not None or rows >= least or self._planned_at is None:
            return False
        return monotonic() - self._planned_at < self._options.max_delay_ms / 1000


async def _end(planner: EventPlanner, queue: str, n: int, bounds: Bounds) -> Position:
    return offsets.latest(bounds) if n == bounds.total else await planner.position_at(queue, n)


class UnlimitedEventStream(EventStream):
    """Stream for Spark 4.0 and 4.1, which do not pass the position of the query to `latestOffset`."""

    # An offset must contain the begin of its batch (see offsets.py), but here the begin is known only after a batch was
    # planned in this process. Before that, in a new query or after a restart, the end is marked "open". Its begins are
    # right for a new query. For a restarted query Spark passes the true start to `partitions`, and the batch is
    # computed from that instead. Spark has written the open end to its log by then; planning it again repeats the
    # computation with the same start, so the batch stays the same unless events were trimmed in between.

    def __init__(
        self, options: ReadOptions, schema: StructType, planner: Callable[[], EventPlanner] | None = None
    ) -> None:
        super().__init__(options, schema, planner)
        self._known: Offset | None = None

    def latestOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802 # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the end of all stored events."""
        planner = self._planner()
        if self._known is not None:
            return planner.run(self._advance(planner, self._known, None))
        self.initialOffset()
        return {**planner.run(self._all(planner)), "open": 1}

    async def _all(self, planner: EventPlanner) -> Offset:
        starts = offsets.ends_of(self.initialOffset())
        ends = await planner.positions(await planner.queue_names(), "latest", "latest")
        return offsets.to_offset(ends, {queue: starts.get(queue, end) for queue, end in ends.items()})

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Plan one batch, and remember its end as the position of the query."""
        planner = self._planner()
        self._known = end
        if end.get("open") and start != end and not offsets.is_new(start):
            end = planner.run(self._close(planner, start, end))
        return self._plan(planner, start, end)

    async def _close(self, planner: EventPlanner, start: Offset, end: Offset) -> Offset:
        known, ends = offsets.ends_of(start), offsets.ends_of(end)
        found = await planner.for_each_queue(ends, lambda queue: planner.resume_position(queue, known.get(queue)))
        lost = [loss for _, _, losses in found.values() for loss in losses]
        return offsets.to_offset(ends, {queue: begin for queue, (_, begin, _) in found.items()}, lost)
