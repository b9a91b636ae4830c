"""A range of a queue's events as record batches. This runs in Spark's tasks."""

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
"""A record batch is closed when it holds so many rows."""
MOST_ENTRIES: Final = 2_000
FIRST_ENTRIES: Final = 100


@dataclass
class EventPartition(InputPartition):
    """Events from number `first` up to and without `upto`: read from `entry` on, and no further than `last`."""

    queue: str
    incarnation: str
    entry: str
    first: int
    upto: int
    last: str


class EventsLostError(RuntimeError):
    """Events that were to be read are gone."""


def lost(loss: Loss, url: str) -> EventsLostError:
    """Return the error for a loss that the reader does not put up with."""
    return EventsLostError(
        f"{loss} (at {masked(url)}). What is lost is lost: go on without it by failOnDataLoss=false, which notes "
        "each loss for kind=losses; read more often, or keep events longer by publishPosition and retainUncommitted"
    )


def read_events(partition: InputPartition, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Read the events of one partition. Raises EventsLostError, unless losses are only to be noted."""
    if not isinstance(partition, EventPartition):  # Spark's stand-in for an empty plan
        return
    columns = EventColumns(partition.queue, partition.incarnation, options.events, arrow_schema(schema))
    connection = connection_to(options.url)
    begin = following = partition.first
    for entry, fields in _entries(connection, partition, options):
        seq, n = int(fields[b"seq"]), int(fields[b"n"])
        if seq + n <= following:
            continue
        # The events of a batch follow each other.
        if begin < following and (seq != following or following - begin >= ROWS):
            yield columns.take(begin, following)
            begin = following
        if seq > following:
            _lose(connection, partition, options, following, min(seq, partition.upto))
            begin = following = min(seq, partition.upto)
        if seq < partition.upto:
            columns.add(entry, fields)
            following = min(seq + n, partition.upto)
        if following == partition.upto:
            break
    if begin < following:
        yield columns.take(begin, following)
    if following < partition.upto:
        _lose(connection, partition, options, following, partition.upto)


def _entries(connection: Connection, partition: EventPartition, options: ReadOptions) -> Iterator[StreamEntry]:
    """Iterate over the entries from the partition's first one to its last one."""
    key = QueueKeys(options.prefix, partition.queue).key("events")
    after = NO_ENTRY if partition.entry == NO_ENTRY else before(partition.entry)
    last, count = _order(partition.last), FIRST_ENTRIES
    while True:
        with _uncollected():
            found = connection.run(connection.storage.read_stream(key, after, count, 0))
        if not found:
            return
        after = found[-1][0].decode()
        if _order(after) > last:
            yield from (entry for entry in found if _order(entry[0].decode()) <= last)
            return
        yield from found
        if len(found) < count:
            return
        count = max(1, min(MOST_ENTRIES, options.fetch_size * len(found) // _events(found)))


@contextmanager
def _uncollected() -> Generator[None]:
    """Keep the garbage collector from looking, while thousands of lists come in, through all that Spark has imported.

    It takes as long as the rest of a read, and finds nothing: there are no circles in a reply.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _events(found: Sequence[StreamEntry]) -> int:
    """Return how many events these entries hold; numbers go back where a queue began again."""
    first, last = found[0][1], found[-1][1]
    return max(1, int(last[b"seq"]) + int(last[b"n"]) - int(first[b"seq"]))


def _order(entry: str) -> tuple[int, int]:
    ms, _, number = entry.partition("-")
    return int(ms), int(number)


def _lose(connection: Connection, partition: EventPartition, options: ReadOptions, first: int, upto: int) -> None:
    loss = Loss(partition.queue, "they went while the batch was read", partition.incarnation, first, upto)
    if options.fail_on_loss:
        raise lost(loss, options.url)
    note_loss(connection, options, loss)


def note_loss(connection: Connection, options: ReadOptions, loss: Loss) -> None:
    """Write a loss down where kind=losses reads it; the same loss is noted once."""
    functions = connection.functions(QueueKeys(options.prefix, loss.queue))
    name = options.position_name or ""
    connection.run(functions.note_loss(name, loss.why, loss.incarnation, loss.first, loss.upto))
