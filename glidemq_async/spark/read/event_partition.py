"""Read a range of a queue's events as record batches, in a Spark task."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from glidemq_async.queues.events import before
from glidemq_async.spark.connection import Connection, connection_to
from glidemq_async.spark.read.event_columns import EventColumns
from glidemq_async.spark.read.offsets import NO_ENTRY, Loss
from glidemq_async.spark.read.options import ReadOptions
from glidemq_async.spark.read.schemas import arrow_schema
from glidemq_async.storage import StreamEntry
from glidemq_async.storage.urls import masked
from glidemq_async.stored.names import QueueKeys

ROWS: Final = 10_000
"""Maximum number of rows of a record batch, unless one entry contains more."""
MOST_ENTRIES: Final = 2_000
FIRST_ENTRIES: Final = 100


@dataclass
class EventPartition(InputPartition):
    """The events from number `first` to `stop - 1`, in the entries from `entry` to `last`."""

    queue: str
    incarnation: str
    entry: str
    first: int
    stop: int
    last: str


class EventsLostError(RuntimeError):
    """Events were trimmed or obliterated before they were read."""


def loss_error(loss: Loss, url: str) -> EventsLostError:
    """Return the error for a loss, for readers with failOnDataLoss=true."""
    return EventsLostError(
        f"{loss} (at {masked(url)}). These events cannot be recovered. Set failOnDataLoss=false to continue without "
        "them and record each loss for kind=losses. To prevent losses, read more often, or set publishPosition and "
        "retainUncommitted to keep events longer"
    )


def read_events(partition: InputPartition, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Read the events of one partition. Raises EventsLostError for lost events, unless failOnDataLoss=false."""
    if not isinstance(partition, EventPartition):  # Spark's placeholder in an empty plan
        return
    columns = EventColumns(partition.queue, partition.incarnation, options.events, arrow_schema(schema))
    connection = connection_to(options.url)
    begin = following = partition.first
    for entry, fields in _entries(connection, partition, options):
        seq, n = int(fields[b"seq"]), int(fields[b"n"])
        # The first entry of a partition usually begins before its first event, because an entry contains several
        # events.
        if seq + n <= following:
            continue
        # `EventColumns.take` computes the numbers of the events, so a batch must not contain a gap.
        if begin < following and (seq != following or following - begin >= ROWS):
            yield columns.take(begin, following)
            begin = following
        # Events are numbered without gaps, so a jump means that entries were trimmed between the planning and this
        # read. The loss is reported with its exact range; the rest of the partition is still read.
        if seq > following:
            _handle_loss(connection, partition, options, following, min(seq, partition.stop))
            begin = following = min(seq, partition.stop)
        if seq < partition.stop:
            columns.add(entry, fields)
            following = min(seq + n, partition.stop)
        if following == partition.stop:
            break
    if begin < following:
        yield columns.take(begin, following)
    if following < partition.stop:
        _handle_loss(connection, partition, options, following, partition.stop)


def _entries(connection: Connection, partition: EventPartition, options: ReadOptions) -> Iterator[StreamEntry]:
    """Iterate over the entries of the partition."""
    key = QueueKeys(options.prefix, partition.queue).key("events")
    after = NO_ENTRY if partition.entry == NO_ENTRY else before(partition.entry)
    last, count = _parse_entry_id(partition.last), FIRST_ENTRIES
    while True:
        with _without_gc():
            found = connection.run(connection.storage.read_stream(key, after, count, 0))
        if not found:
            return
        after = found[-1][0].decode()
        # Entries after `last` belong to the next batch, even if their numbers fit:
        # after a failover a number may have been assigned a second time.
        if _parse_entry_id(after) > last:
            yield from (entry for entry in found if _parse_entry_id(entry[0].decode()) <= last)
            return
        yield from found
        if len(found) < count:
            return
        count = max(1, min(MOST_ENTRIES, options.fetch_size * len(found) // _count_events(found)))


@contextmanager
def _without_gc() -> Generator[None]:
    """Switch the garbage collector off during a read.

    A reply creates thousands of lists, which trigger collections of all objects that Spark has imported. They take as
    long as the rest of the read and free nothing, because a reply contains no reference cycles.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _count_events(found: Sequence[StreamEntry]) -> int:
    """Return the number of events in these entries, at least 1. Numbers decrease where a queue was created again."""
    first, last = found[0][1], found[-1][1]
    return max(1, int(last[b"seq"]) + int(last[b"n"]) - int(first[b"seq"]))


def _parse_entry_id(entry: str) -> tuple[int, int]:
    ms, _, number = entry.partition("-")
    return int(ms), int(number)


def _handle_loss(
    connection: Connection, partition: EventPartition, options: ReadOptions, first: int, stop: int
) -> None:
    loss = Loss(partition.queue, "they were trimmed while the batch was read", partition.incarnation, first, stop)
    if options.fail_on_loss:
        raise loss_error(loss, options.url)
    note_loss(connection, options, loss)


def note_loss(connection: Connection, options: ReadOptions, loss: Loss) -> None:
    """Store a loss on the server, where kind=losses reads it. Storing a loss twice has no effect."""
    functions = connection.functions(QueueKeys(options.prefix, loss.queue))
    name = options.position_name or ""
    connection.run(functions.history.note_loss(name, loss.why, loss.incarnation, loss.first, loss.stop))
